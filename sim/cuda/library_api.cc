#include <fstream>
#include <iterator>

#include "base/mutex.h"
#include "sim/cuda/context.h"
#include "sim/cuda/function.h"

// cuLibrary*: images that belong to no context. A context gets its module of a library at the first call that needs
// one.
namespace carve::sim::cu {

CU_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule handle,
                                        const char* name);

namespace {

Library* checked_library(CUlibrary l) {
  return l != nullptr && l->magic == kLibraryMagic ? l : nullptr;
}

CUresult load(CUlibrary* out, const void* code) {
  CU_NEED_INIT();
  if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto library = std::make_unique<Library>();
  switch (read_image(code, &library->image)) {
    case ImageError::kNotAnImage:
      return CUDA_ERROR_INVALID_IMAGE;
    case ImageError::kBadPtx:
      return CUDA_ERROR_INVALID_PTX;
    case ImageError::kNone:
      break;
  }
  for (const ImageKernel& kernel : library->image.kernels) {
    library->kernels.push_back(make_function(kernel));
    library->kernels.back()->library = library.get();
  }
  *out = library.release();
  return CUDA_SUCCESS;
}

/// The library's module in `context`; created at the first call.
CUresult module_in(Library* library, Context* context, Module** out) {
  {
    const MutexLock lock(library->mutex);
    for (Module* module : library->modules) {
      if (module->context != context) continue;
      *out = module;
      return CUDA_SUCCESS;
    }
  }
  const CUresult rc = make_module(context, library->image, library, out);
  if (rc != CUDA_SUCCESS) return rc;
  const MutexLock lock(library->mutex);
  library->modules.push_back(*out);
  return CUDA_SUCCESS;
}

}  // namespace

CU_EXPORT CUresult cuLibraryLoadData(CUlibrary* out, const void* code, int*, void**, unsigned, int*,
                                     void**, unsigned) {
  return load(out, code);
}

CU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, int*, void**, unsigned,
                                         int*, void**, unsigned) {
  CU_NEED_INIT();
  if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  bytes.append(16, '\0');
  return load(out, bytes.data());
}

CU_EXPORT CUresult cuLibraryUnload(CUlibrary handle) {
  CU_NEED_INIT();
  Library* library = checked_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const MutexLock lock(library->mutex);
  for (Module* module : library->modules) {
    free_globals(module);
    const MutexLock inner(module->context->mutex);
    std::erase(module->context->modules, module);
    module->magic = 0;
    for (const auto& function : module->functions) function->magic = 0;
  }
  library->modules.clear();
  for (const auto& kernel : library->kernels) kernel->magic = 0;
  library->magic = 0;
  return CUDA_SUCCESS;  // the object stays, so that calls with a stale handle return an error
}

CU_EXPORT CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary handle, const char* name) {
  CU_NEED_INIT();
  Library* library = checked_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(library->mutex);
  Function* kernel = find_function(library->kernels, name, library->image.opaque);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  kernel->library = library;
  *out = kernel;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuLibraryGetKernelCount(unsigned* out, CUlibrary handle) {
  CU_NEED_INIT();
  Library* library = checked_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel* out, unsigned n, CUlibrary handle) {
  CU_NEED_INIT();
  Library* library = checked_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < n && i < library->kernels.size(); ++i)
    out[i] = library->kernels[i].get();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuLibraryGetModule(CUmodule* out, CUlibrary handle) {
  CU_NEED_CONTEXT(context);
  Library* library = checked_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return module_in(library, context, out);
}

CU_EXPORT CUresult cuKernelGetFunction(CUfunction* out, CUkernel handle) {
  CU_NEED_CONTEXT(context);
  Function* kernel = checked_function(handle);
  if (kernel == nullptr || kernel->library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Module* module = nullptr;
  if (const CUresult rc = module_in(kernel->library, context, &module); rc != CUDA_SUCCESS) return rc;
  const MutexLock lock(context->mutex);
  Function* function = find_function(module->functions, kernel->name, module->any_name);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  function->module = module;
  function->library = kernel->library;
  function->max_dynamic_shared = kernel->max_dynamic_shared;
  *out = function;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel handle) {
  CU_NEED_INIT();
  const Function* kernel = checked_function(handle);
  if (kernel == nullptr || kernel->library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = kernel->library;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary handle,
                                      const char* name) {
  CU_NEED_CONTEXT(context);
  Library* library = checked_library(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Module* module = nullptr;
  if (const CUresult rc = module_in(library, context, &module); rc != CUDA_SUCCESS) return rc;
  return cuModuleGetGlobal_v2(address, bytes, module, name);
}

// No image that the simulator reads has managed variables or unified functions.
CU_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr*, std::size_t*, CUlibrary handle, const char*) {
  CU_NEED_INIT();
  return checked_library(handle) != nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}
CU_EXPORT CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary handle, const char*) {
  CU_NEED_INIT();
  return checked_library(handle) != nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace carve::sim::cu
