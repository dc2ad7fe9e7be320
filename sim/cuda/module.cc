#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/mutex.h"
#include "sim/cuda/context.h"
#include "sim/cuda/function.h"
#include "sim/cuda/memory.h"

// cuModule*: images of one context.
namespace carve::sim::cu {
namespace {

std::atomic<bool> g_said_opaque{false};

Module* checked_module(CUmodule m) {
  return m != nullptr && m->magic == kModuleMagic ? m : nullptr;
}

CUresult load(CUmodule* out, const void* image) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Image parsed;
  switch (read_image(image, &parsed)) {
    case ImageError::kNotAnImage:
      return CUDA_ERROR_INVALID_IMAGE;
    case ImageError::kBadPtx:
      return CUDA_ERROR_INVALID_PTX;
    case ImageError::kNone:
      break;
  }
  return make_module(context, parsed, nullptr, out);
}

}  // namespace

std::unique_ptr<Function> make_function(const ImageKernel& kernel) {
  auto function = std::make_unique<Function>();
  function->name = kernel.name;
  function->parameters = kernel.parameters;
  function->parameters_known = kernel.parameters_known;
  function->static_shared = kernel.static_shared;
  function->duration_ns =
      kernel.duration_ns != 0 ? kernel.duration_ns : duration_in_name(kernel.name);
  function->compute = find_compute(kernel.name);
  return function;
}

void free_globals(Module* module) {
  for (const Global& global : module->globals)
    Memory::get().free(global.address, BlockKind::kModule);
  module->globals.clear();
}

CUresult make_module(Context* context, const Image& image, Library* library, Module** out) {
  auto owned = std::make_unique<Module>();
  Module* module = owned.get();
  module->context = context;
  module->library = library;
  module->any_name = image.opaque;
  if (image.opaque)
    say_once(&g_said_opaque,
             "an image has a packing that cannot be read; every kernel name in it is accepted");
  for (const ImageKernel& kernel : image.kernels) {
    module->functions.push_back(make_function(kernel));
    module->functions.back()->module = module;
    module->functions.back()->library = library;
  }
  for (const ImageGlobal& global : image.globals) {
    Block block;
    if (const CUresult rc = Memory::get().allocate(context, global.size, BlockKind::kModule, 0, &block);
        rc != CUDA_SUCCESS) {
      free_globals(module);
      return rc;
    }
    module->globals.push_back({global.name, global.size, block.base});
  }
  const MutexLock lock(context->mutex);
  context->modules.push_back(owned.release());
  *out = module;
  return CUDA_SUCCESS;
}

Function* find_function(std::vector<std::unique_ptr<Function>>& functions, const std::string& name,
                        bool any_name) {
  for (const auto& function : functions)
    if (function->name == name) return function.get();
  if (!any_name) return nullptr;
  ImageKernel kernel;
  kernel.name = name;
  functions.push_back(make_function(kernel));
  return functions.back().get();
}

void unload_context_modules(Context* context) {
  std::vector<Module*> modules;
  {
    const MutexLock lock(context->mutex);  // not while a library is locked: cuLibrary… takes the locks in that order
    modules.swap(context->modules);
  }
  for (Module* module : modules) {
    module->magic = 0;
    for (const auto& function : module->functions) function->magic = 0;
    if (module->library != nullptr) {
      const MutexLock lock(module->library->mutex);
      std::erase(module->library->modules, module);
    }
  }
}

CU_EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) { return load(out, image); }
CU_EXPORT CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, int*, void**) {
  return load(out, image);
}
CU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return load(out, image);
}

CU_EXPORT CUresult cuModuleLoad(CUmodule* out, const char* path) {
  CU_NEED_CONTEXT(context);
  if (out == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  bytes.append(16, '\0');
  return load(out, bytes.data());
}

CU_EXPORT CUresult cuModuleUnload(CUmodule handle) {
  CU_NEED_CONTEXT(current);
  Module* module = checked_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library != nullptr) return CUDA_ERROR_NOT_PERMITTED;
  free_globals(module);
  {
    const MutexLock lock(module->context->mutex);
    std::erase(module->context->modules, module);
  }
  module->magic = 0;
  for (const auto& function : module->functions) function->magic = 0;
  return CUDA_SUCCESS;  // the object stays, so that calls with a stale handle return an error
}

CU_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
  CU_NEED_INIT();
  Module* module = checked_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(module->context->mutex);
  Function* function = find_function(module->functions, name, module->any_name);
  if (function == nullptr) return CUDA_ERROR_NOT_FOUND;
  function->module = module;
  *out = function;
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  CU_NEED_INIT();
  Module* module = checked_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->functions.size());
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned n, CUmodule handle) {
  CU_NEED_INIT();
  Module* module = checked_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < n && i < module->functions.size(); ++i)
    functions[i] = module->functions[i].get();
  return CUDA_SUCCESS;
}

CU_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, std::size_t* bytes, CUmodule handle,
                                        const char* name) {
  CU_NEED_INIT();
  Module* module = checked_module(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Global& global : module->globals) {
    if (global.name != name) continue;
    if (address != nullptr) *address = global.address;
    if (bytes != nullptr) *bytes = global.size;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CU_EXPORT CUresult cuModuleGetLoadingMode(int* mode) {
  CU_NEED_INIT();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = 2;  // lazy
  return CUDA_SUCCESS;
}

}  // namespace carve::sim::cu
