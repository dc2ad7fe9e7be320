#pragma once

#include <string>

namespace carve::preload::testing {

/// The source files of the libraries that a container finds under the usual names.
struct Places {
  std::string cuda_library;  // libcarve-cuda.so; "" leaves the driver itself under the link names
  std::string nvml_library;
  std::string cuda_driver;   // the file that becomes /usr/lib/carve/driver/libcuda.so.1
  std::string nvml_driver;
};

/// Moves this process into a private mount namespace that has the files of a slice: the libraries under the link names,
/// the driver's files in their private folder, and a /run/carve with an empty slices folder. It uses an overlay on
/// /usr/lib and writes nothing to the machine. Returns "" or the step that failed. Call it once per process. Needs
/// root.
std::string enter_sandbox(const Places& places);

}  // namespace carve::preload::testing
