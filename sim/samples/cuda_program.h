#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// The driver API for the sample programs: libcuda.so.1 is opened by name, functions are found with dlsym. Plain C types
// without NVIDIA's headers.
namespace carve::sample {

using Device = int;
using DevicePtr = unsigned long long;

struct Cuda {
  int (*cuInit)(unsigned);
  int (*cuDeviceGet)(Device*, int);
  int (*cuDeviceGetCount)(int*);
  int (*cuDeviceGetName)(char*, int, Device);
  int (*cuDevicePrimaryCtxRetain)(void**, Device);
  int (*cuCtxSetCurrent)(void*);
  int (*cuCtxSynchronize)();
  int (*cuModuleLoadData)(void**, const void*);
  int (*cuModuleGetFunction)(void**, void*, const char*);
  int (*cuStreamCreate)(void**, unsigned);
  int (*cuStreamSynchronize)(void*);
  int (*cuStreamBeginCapture_v2)(void*, int);
  int (*cuStreamEndCapture)(void*, void**);
  int (*cuGraphInstantiateWithFlags)(void**, void*, unsigned long long);
  int (*cuGraphLaunch)(void*, void*);
  int (*cuEventCreate)(void**, unsigned);
  int (*cuEventRecord)(void*, void*);
  int (*cuEventSynchronize)(void*);
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        void*, void**, void**);
  int (*cuMemAlloc_v2)(DevicePtr*, std::size_t);
  int (*cuMemFree_v2)(DevicePtr);
  int (*cuMemGetInfo_v2)(std::size_t*, std::size_t*);
  int (*cuMemsetD8_v2)(DevicePtr, unsigned char, std::size_t);
  int (*cuGetErrorName)(int, const char**);
};

/// Opens the library and finds all functions. On failure prints a message and exits with code 1.
const Cuda& cuda();

/// Exits with a message unless `rc` is success.
void must(int rc, const char* what);

/// PTX with one kernel named `carve_spin_<us>us`, which declares its duration.
std::string spin_ptx(std::uint64_t us);
std::string spin_name(std::uint64_t us);

/// "64", "64Ki", "1Gi", "4G"; false when it is not a size.
bool parse_size(const char* text, std::uint64_t* bytes);

std::uint64_t now_ns();

}  // namespace carve::sample
