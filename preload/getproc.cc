#include "preload/driver.h"
#include "preload/export.h"
#include "preload/process.h"

// The driver answers with the caller's own name, version and flags; only then the address is looked up. So
// which variant a program gets stays the driver's business, and a symbol we do not know stays untouched.
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
