#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "preload/driver_abi.h"

namespace carve::isolation {

/// Calls a driver function by name, through the library at libcuda's usual name; aborts when there is no such function.
template <class... Arguments>
CUresult call(const char* symbol, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  using Function = CUresult(Arguments...);
  return reinterpret_cast<Function*>(dlsym(library, symbol))(arguments...);
}

/// Calls cuInit and makes the primary context of card 0 current.
inline CUresult start_driver() {
  CUresult result = call("cuInit", 0U);
  CUcontext context = nullptr;
  result = result != 0 ? result : call("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
  return result != 0 ? result : call("cuCtxSetCurrent", context);
}

inline std::size_t free_memory() {
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  call("cuMemGetInfo_v2", &free_bytes, &total);
  return free_bytes;
}

}  // namespace carve::isolation
