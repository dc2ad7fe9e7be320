#include <algorithm>

#include "sim/cuda/context.h"
#include "sim/cuda/function.h"

// Reads and sets the attributes of a kernel: a function of a module or a library's kernel. A kernel that computes
// nothing has no registers and no machine code. Values that only a compiler can know are plausible constants; values
// that the image contains (parameters, static shared memory) are read from it.
namespace carve::sim::cu {
namespace {

enum Attribute : int {
  kMaxThreadsPerBlock = 0,
  kSharedBytes = 1,
  kConstantBytes = 2,
  kLocalBytes = 3,
  kRegisters = 4,
  kPtxVersion = 5,
  kBinaryVersion = 6,
  kCacheModeCa = 7,
  kMaxDynamicShared = 8,
  kCarveout = 9,
  kClusterMustBeSet = 10,
  kLastAttribute = 15,
};
constexpr int kTypicalRegisters = 32;
constexpr int kLoaded = 1;

int architecture() {
  const Model& model = Driver::get().model();
  return static_cast<int>(model.compute_major * 10 + model.compute_minor);
}

CUresult get(int* out, int attribute, const Function* f) {
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || attribute < 0 || attribute > kLastAttribute)
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case kMaxThreadsPerBlock:
      *out = 1024;
      break;
    case kSharedBytes:
      *out = static_cast<int>(f->static_shared);
      break;
    case kRegisters:
      *out = kTypicalRegisters;
      break;
    case kPtxVersion:
    case kBinaryVersion:
      *out = architecture();
      break;
    case kMaxDynamicShared:
      *out = f->max_dynamic_shared;
      break;
    case kCarveout:
      *out = f->carveout;
      break;
    default:
      *out = 0;
      break;
  }
  return CUDA_SUCCESS;
}

CUresult set(Function* f, int attribute, int value) {
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute < kMaxDynamicShared || attribute > kLastAttribute || attribute == kClusterMustBeSet)
    return CUDA_ERROR_INVALID_VALUE;
  if (attribute == kMaxDynamicShared) {
    const auto most =
        static_cast<int>(Driver::get().model().shared_per_block_max - f->static_shared);
    if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
    f->max_dynamic_shared = value;
  }
  if (attribute == kCarveout) {
    if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
    f->carveout = value;
  }
  return CUDA_SUCCESS;
}

CUresult parameter(const Function* f, std::size_t i, std::size_t* offset, std::size_t* size) {
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (offset == nullptr || i >= f->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = f->parameters[i].offset;
  if (size != nullptr) *size = f->parameters[i].size;
  return CUDA_SUCCESS;
}

CUresult parameter_count(const Function* f, std::size_t* out) {
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = f->parameters.size();
  return CUDA_SUCCESS;
}

CUresult name_of(const char** out, const Function* f) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = f->name.c_str();
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuFuncGetAttribute(int* out, int attribute, CUfunction f) {
  CU_NEED_INIT();
  return get(out, attribute, checked_function(f));
}
CU_EXPORT CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value) {
  CU_NEED_INIT();
  return set(checked_function(f), attribute, value);
}
CU_EXPORT CUresult cuKernelGetAttribute(int* out, int attribute, CUkernel k, CUdevice device) {
  CU_NEED_INIT();
  if (Driver::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return get(out, attribute, checked_function(k));
}
CU_EXPORT CUresult cuKernelSetAttribute(int attribute, int value, CUkernel k, CUdevice device) {
  CU_NEED_INIT();
  if (Driver::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return set(checked_function(k), attribute, value);
}

CU_EXPORT CUresult cuFuncSetCacheConfig(CUfunction f, int) {
  CU_NEED_INIT();
  return checked_function(f) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CU_EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction f, int) {
  CU_NEED_INIT();
  return checked_function(f) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CU_EXPORT CUresult cuKernelSetCacheConfig(CUkernel k, int, CUdevice device) {
  CU_NEED_INIT();
  if (Driver::get().device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return checked_function(k) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CU_EXPORT CUresult cuFuncGetName(const char** out, CUfunction f) {
  CU_NEED_INIT();
  return name_of(out, checked_function(f));
}
CU_EXPORT CUresult cuKernelGetName(const char** out, CUkernel k) {
  CU_NEED_INIT();
  return name_of(out, checked_function(k));
}
CU_EXPORT CUresult cuFuncGetParamInfo(CUfunction f, std::size_t i, std::size_t* offset,
                                      std::size_t* size) {
  CU_NEED_INIT();
  return parameter(checked_function(f), i, offset, size);
}
CU_EXPORT CUresult cuKernelGetParamInfo(CUkernel k, std::size_t i, std::size_t* offset,
                                        std::size_t* size) {
  CU_NEED_INIT();
  return parameter(checked_function(k), i, offset, size);
}
CU_EXPORT CUresult cuFuncGetParamCount(CUfunction f, std::size_t* out) {
  CU_NEED_INIT();
  return parameter_count(checked_function(f), out);
}
CU_EXPORT CUresult cuKernelGetParamCount(CUkernel k, std::size_t* out) {
  CU_NEED_INIT();
  return parameter_count(checked_function(k), out);
}

CU_EXPORT CUresult cuFuncGetModule(CUmodule* out, CUfunction handle) {
  CU_NEED_INIT();
  const Function* f = checked_function(handle);
  if (f == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = f->module;
  return f->module != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CU_EXPORT CUresult cuFuncIsLoaded(int* state, CUfunction f) {
  CU_NEED_INIT();
  if (checked_function(f) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = kLoaded;
  return CUDA_SUCCESS;
}
CU_EXPORT CUresult cuFuncLoad(CUfunction f) {
  CU_NEED_INIT();
  return checked_function(f) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace carve::sim::cu
