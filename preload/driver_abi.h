#pragma once

#include <cstddef>
#include <cstdint>

// The part of the CUDA driver's binary interface that the hooks use: handle types, result codes and the few
// structures of which the hooks read fields. The source is the public documentation. A layout is asserted where the
// hooks read a field. Structures that the hooks only pass on stay opaque.

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = std::uint64_t;
using CUdeviceptr_v1 = std::uint32_t;
using CUmemGenericAllocationHandle = std::uint64_t;

using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUfunction = struct CUfunc_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUarray = struct CUarray_st*;
using CUmipmappedArray = struct CUmipmappedArray_st*;
using CUexternalMemory = struct CUextMemory_st*;

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr CUresult CUDA_ERROR_INVALID_VALUE = 1;
inline constexpr CUresult CUDA_ERROR_OUT_OF_MEMORY = 2;
inline constexpr CUresult CUDA_ERROR_NOT_READY = 600;
inline constexpr CUresult CUDA_ERROR_SYSTEM_NOT_READY = 802;
inline constexpr CUresult CUDA_ERROR_NOT_SUPPORTED = 801;

inline constexpr unsigned CU_EVENT_DISABLE_TIMING = 2;
inline constexpr int CU_STREAM_CAPTURE_MODE_RELAXED = 2;
inline constexpr int CU_STREAM_CAPTURE_STATUS_ACTIVE = 1;
inline constexpr int CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4;
inline constexpr int CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5;
inline constexpr int CU_MEMPOOL_ATTR_ALLOCATION_TYPE = 9;
inline constexpr int CU_MEMPOOL_ATTR_LOCATION_ID = 11;
inline constexpr int CU_MEMPOOL_ATTR_LOCATION_TYPE = 12;
inline constexpr int CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9;
inline constexpr int CU_MEM_ALLOCATION_TYPE_MANAGED = 2;
inline constexpr int CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2;
inline constexpr int CU_GRAPH_NODE_TYPE_GRAPH = 4;
inline constexpr int CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10;
inline constexpr int CU_MEM_LOCATION_TYPE_DEVICE = 1;
inline constexpr int CU_MEM_LOCATION_TYPE_HOST = 2;
inline constexpr int CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 4;
inline constexpr int CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN = 6;

/// The two streams for which no handle is created.
inline CUstream legacy_stream() { return reinterpret_cast<CUstream>(std::uintptr_t{1}); }
inline CUstream per_thread_stream() { return reinterpret_cast<CUstream>(std::uintptr_t{2}); }

struct CUuuid {
  unsigned char bytes[16];
};

struct CUmemLocation {
  int type;
  int id;
};

struct CUmemAllocationProp {
  int type;
  int requested_handle_types;
  CUmemLocation location;
  void* win32_handle_meta_data;
  unsigned char alloc_flags[8];
};
static_assert(sizeof(CUmemAllocationProp) == 32);

struct CUmemPoolProps {
  int alloc_type;
  int handle_types;
  CUmemLocation location;
  void* win32_security_attributes;
  std::size_t max_size;
  unsigned char reserved[56];
};
static_assert(sizeof(CUmemPoolProps) == 88);

/// A launch attribute of cuLaunchKernelEx. The value has 64 bytes; the hooks read only the cluster dimension.
struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;  // for CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
  } value;
};
static_assert(sizeof(CUlaunchAttribute) == 72);
inline constexpr int CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4;

struct CUlaunchConfig {
  unsigned grid_dim_x, grid_dim_y, grid_dim_z;
  unsigned block_dim_x, block_dim_y, block_dim_z;
  unsigned shared_mem_bytes;
  CUstream stream;
  CUlaunchAttribute* attrs;
  unsigned num_attrs;
};
static_assert(offsetof(CUlaunchConfig, stream) == 32);

struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned grid_dim_x, grid_dim_y, grid_dim_z;
  unsigned block_dim_x, block_dim_y, block_dim_z;
  unsigned shared_mem_bytes;
  CUstream stream;
  void** kernel_params;
};
static_assert(sizeof(CUDA_LAUNCH_PARAMS) == 56);

struct CUDA_ARRAY_DESCRIPTOR {
  std::size_t width, height;
  int format;
  unsigned num_channels;
};

struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned width, height;
  int format;
  unsigned num_channels;
};

struct CUDA_ARRAY3D_DESCRIPTOR {
  std::size_t width, height, depth;
  int format;
  unsigned num_channels;
  unsigned flags;
};

struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned width, height, depth;
  int format;
  unsigned num_channels;
  unsigned flags;
};

struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  std::size_t size;
  std::size_t alignment;
  unsigned reserved[4];
};

struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps pool_props;
  const void* access_descs;
  std::size_t access_desc_count;
  std::size_t bytesize;
  CUdeviceptr dptr;
};
static_assert(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) == 104);

struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
  int type;
  union {
    int fd;
    struct {
      void* handle;
      const void* name;
    } win32;
    const void* nv_sci_buf_object;
  } handle;
  unsigned long long size;
  unsigned flags;
  unsigned reserved[16];
};
static_assert(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) == 24);

struct CUipcMemHandle {
  char reserved[64];
};
