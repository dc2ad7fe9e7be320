#include "preload/driver.h"
#include "preload/export.h"
#include "preload/process.h"

// The hook passes the caller's name, version and flags to the driver unchanged, and looks up the address that the
// driver returns. So the driver decides which variant a program gets, and the address of an unhooked symbol passes
// unchanged.
using namespace carve::preload;

CARVE_EXPORT CUresult cuGetProcAddress(const char* symbol, void** function, int version, std::uint64_t flags) {
  if (!resolve_driver()) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  const CUresult result = CARVE_DRIVER(cuGetProcAddress)(symbol, function, version, flags);
  if (result == CUDA_SUCCESS && function != nullptr && *function != nullptr) {
    *function = in_front_of(*function);
  }
  return result;
}

CARVE_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, std::uint64_t flags,
                                          int* status) {
  if (!resolve_driver()) {
    return CUDA_ERROR_SYSTEM_NOT_READY;
  }
  const CUresult result = CARVE_DRIVER(cuGetProcAddress_v2)(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS && function != nullptr && *function != nullptr) {
    *function = in_front_of(*function);
  }
  return result;
}
