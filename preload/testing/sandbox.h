#pragma once

#include <string>

namespace carve::preload::testing {

/// Where things come from that a container would find under the usual names.
struct Places {
  std::string cuda_library;  // libcarve-cuda.so; "" leaves the driver itself under the link names
  std::string nvml_library;
  std::string cuda_driver;   // the file that becomes /usr/lib/carve/driver/libcuda.so.1
  std::string nvml_driver;
};

/// Moves this process into a mount namespace of its own that looks like the inside of a slice: the libraries
/// under the link names, the driver's files in their private folder (an overlay on /usr/lib, nothing is written
/// to the machine), an empty /run/carve. Returns "" or what failed. Once per process; needs root.
std::string enter_sandbox(const Places& places);

}  // namespace carve::preload::testing
