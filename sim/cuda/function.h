#pragma once

#include <string>
#include <vector>

#include "base/mutex.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/image.h"

// Modules, libraries and the kernels in them.
namespace carve::sim::cu {

inline constexpr std::uint32_t kFunctionMagic = 0xC0DE0005;
inline constexpr std::uint32_t kModuleMagic = 0xC0DE0006;
inline constexpr std::uint32_t kLibraryMagic = 0xC0DE0007;

/// A sample kernel that really computes. `arguments` are the kernel's parameters in order.
using Compute = void (*)(const std::uint64_t threads, void* const* arguments);

struct Function {
  std::uint32_t magic = kFunctionMagic;
  Module* module = nullptr;  // nullptr: a library's kernel
  Library* library = nullptr;
  std::string name;
  std::vector<KernelParameter> parameters;
  bool parameters_known = false;
  std::uint64_t duration_ns = 0;  // 0: computed from the grid's size
  Compute compute = nullptr;
  int max_dynamic_shared = 49152;
  int carveout = -1;
  unsigned static_shared = 0;
};

struct Global {
  std::string name;
  std::uint64_t size = 0;
  CUdeviceptr address = 0;
};

struct Module {
  std::uint32_t magic = kModuleMagic;
  Context* context = nullptr;
  Library* library = nullptr;
  bool any_name = false;  // the image cannot be read: every kernel name is accepted
  std::vector<std::unique_ptr<Function>> functions;
  std::vector<Global> globals;
};

struct Library {
  std::uint32_t magic = kLibraryMagic;
  Image image;
  std::vector<std::unique_ptr<Function>> kernels;
  Mutex mutex;
  std::vector<Module*> modules GUARDED_BY(mutex);  // one per context that uses the library
};

inline Function* checked_function(CUfunction f) {
  return f != nullptr && f->magic == kFunctionMagic ? f : nullptr;
}

/// Builds a function from an image's kernel: its duration and, for the sample kernels, its computation.
std::unique_ptr<Function> make_function(const ImageKernel& kernel);
/// Loads the image into `context`. Its global variables have memory from now on; the driver itself takes that memory.
///   errors  CUDA_ERROR_OUT_OF_MEMORY: not enough memory for the globals; nothing is kept
CUresult make_module(Context* context, const Image& image, Library* library, Module** out);
/// Frees the globals' memory.
void free_globals(Module* module);
Function* find_function(std::vector<std::unique_ptr<Function>>& functions, const std::string& name,
                        bool any_name);

/// The GPU time of one launch.
std::uint64_t duration_of(const Function& function, const unsigned (&grid)[3],
                          const unsigned (&block)[3]);

/// The table of sample kernels; nullptr for any other name.
Compute find_compute(const std::string& name);

}  // namespace carve::sim::cu
