#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Reads a module image: the kernels in PTX text, in a cubin (ELF) or in a fat binary.
namespace carve::sim::cu {

struct KernelParameter {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
};

struct ImageKernel {
  std::string name;
  std::vector<KernelParameter> parameters;
  bool parameters_known = false;
  std::uint64_t duration_ns =
      0;  // from "// carve.duration_us=N" before or inside the entry; 0: none
  unsigned static_shared = 0;
};

struct ImageGlobal {
  std::string name;
  std::uint64_t size = 0;
};

struct Image {
  std::vector<ImageKernel> kernels;
  std::vector<ImageGlobal> globals;
  bool opaque = false;  // a valid image, but in a packing that the simulator does not read
};

enum class ImageError { kNone, kNotAnImage, kBadPtx };

/// Reads an image of unknown length, as cuModuleLoadData receives it.
///   errors  kNotAnImage: no known beginning; kBadPtx: PTX without a .version
ImageError read_image(const void* data, Image* out);

/// The duration at the end of a name: "carve_spin_500us", "…_25us", "…_2ms", "…_800ns". 0: the name contains none.
std::uint64_t duration_in_name(const std::string& name);

}  // namespace carve::sim::cu
