#pragma once

#include "sim/cuda/cuda_records.h"

// Records of the graph calls, as in the driver's binary interface.
namespace carve::sim::cu {

struct KernelNodeParams {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
};
static_assert(sizeof(KernelNodeParams) == 56);

struct KernelNodeParams2 {
  KernelNodeParams first;
  CUkernel kern;
  CUcontext ctx;
};
static_assert(sizeof(KernelNodeParams2) == 72);

struct MemsetNodeParams {
  CUdeviceptr dst;
  std::size_t pitch;
  unsigned value, elementSize;
  std::size_t width, height;
};
static_assert(sizeof(MemsetNodeParams) == 40);

struct HostNodeParams {
  CUhostFn fn;
  void* userData;
};

struct CopyNodeParams {
  int flags, reserved;
  CUcontext copyCtx;
  CUDA_MEMCPY3D params;
};

struct AllocNodeParams {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc* accessDescs;
  std::size_t accessDescCount, bytesize;
  CUdeviceptr dptr;
};
static_assert(sizeof(AllocNodeParams) == 120);

struct NodeParams {
  int type;
  int reserved0[3];
  union {
    KernelNodeParams2 kernel;
    CopyNodeParams copy;
    MemsetNodeParams fill;
    HostNodeParams host;
    CUgraph child;
    CUevent event;
    AllocNodeParams alloc;
    CUdeviceptr address;
    char bytes[232];
  };
  long long reserved2;
};
static_assert(sizeof(NodeParams) == 256);

}  // namespace carve::sim::cu
