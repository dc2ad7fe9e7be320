#include <cstring>
#include <map>

#include "base/mutex.h"
#include "sim/cuda/launch.h"

// Launches as in CUDA 1.x programs (PyCUDA still uses them): the program sets block shape, shared memory and arguments
// on the function one by one, then launches a grid. The simulator translates this to cuLaunchKernel.
namespace carve::sim::cu {

CU_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                  unsigned by, unsigned bz, unsigned shared, CUstream s,
                                  void** parameters, void** extra);

namespace {

/// The state that the set calls leave: a packed buffer of arguments, in the format of cuLaunchKernel's `extra`.
struct Pending {
  unsigned block[3] = {1, 1, 1};
  unsigned shared = 0;
  std::vector<unsigned char> arguments;
};

constexpr std::size_t kMostArguments = 4096;  // bytes, the driver's own limit

Mutex g_mutex;
std::map<CUfunction, Pending>& all_pending() REQUIRES(g_mutex) {
  static auto* all = new std::map<CUfunction, Pending>;
  return *all;
}

template <class F>
CUresult on_function(CUfunction f, F change) {
  CU_NEED_INIT();
  if (checked_function(f) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const MutexLock lock(g_mutex);
  return change(all_pending()[f]);
}

CUresult set_argument(CUfunction f, int offset, const void* value, std::size_t size) {
  if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t end = static_cast<std::size_t>(offset) + size;
  if (end > kMostArguments) return CUDA_ERROR_INVALID_VALUE;
  return on_function(f, [&](Pending& p) {
    if (p.arguments.size() < end) p.arguments.resize(end);
    std::memcpy(p.arguments.data() + offset, value, size);
    return CUDA_SUCCESS;
  });
}

CUresult launch_grid(CUfunction f, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Pending p;
  if (const CUresult rc = on_function(f,
                                      [&](Pending& pending) {
                                        p = pending;
                                        return CUDA_SUCCESS;
                                      });
      rc != CUDA_SUCCESS) {
    return rc;
  }
  // When the image declares more arguments than were set, the rest is zero, not foreign memory.
  if (!f->parameters.empty()) {
    const KernelParameter& last = f->parameters.back();
    p.arguments.resize(std::max<std::size_t>(p.arguments.size(), last.offset + last.size));
  }
  std::size_t size = p.arguments.size();
  void* extra[] = {reinterpret_cast<void*>(std::uintptr_t{1}), p.arguments.data(),
                   reinterpret_cast<void*>(std::uintptr_t{2}), &size, nullptr};
  return cuLaunchKernel(f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1,
                        p.block[0], p.block[1], p.block[2], p.shared, stream, nullptr, extra);
}

}  // namespace

CU_EXPORT CUresult cuFuncSetBlockShape(CUfunction f, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  return on_function(f, [&](Pending& p) {
    const int shape[3] = {x, y, z};
    for (int i = 0; i < 3; ++i) p.block[i] = static_cast<unsigned>(shape[i]);
    return CUDA_SUCCESS;
  });
}

CU_EXPORT CUresult cuFuncSetSharedSize(CUfunction f, unsigned bytes) {
  return on_function(f, [&](Pending& p) {
    p.shared = bytes;
    return CUDA_SUCCESS;
  });
}

CU_EXPORT CUresult cuParamSetSize(CUfunction f, unsigned bytes) {
  if (bytes > kMostArguments) return CUDA_ERROR_INVALID_VALUE;
  return on_function(f, [&](Pending& p) {
    p.arguments.resize(bytes);
    return CUDA_SUCCESS;
  });
}

CU_EXPORT CUresult cuParamSeti(CUfunction f, int offset, unsigned value) {
  return set_argument(f, offset, &value, sizeof value);
}
CU_EXPORT CUresult cuParamSetf(CUfunction f, int offset, float value) {
  return set_argument(f, offset, &value, sizeof value);
}
CU_EXPORT CUresult cuParamSetv(CUfunction f, int offset, void* value, unsigned bytes) {
  return set_argument(f, offset, value, bytes);
}

CU_EXPORT CUresult cuLaunch(CUfunction f) { return launch_grid(f, 1, 1, nullptr); }
CU_EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height) {
  return launch_grid(f, width, height, nullptr);
}
CU_EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
  return launch_grid(f, width, height, stream);
}

}  // namespace carve::sim::cu
