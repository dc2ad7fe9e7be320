#pragma once

#include <string>

#include "base/result.h"

namespace carve::mountns {

/// Stores libcarve's two objects and the containers' hook for slices, in one folder per build below the state folder,
/// so that running processes keep the files that they have mapped when a new build is installed.
class LibraryStore {
 public:
  /// Copies libcarve-cuda.so, libcarve-nvml.so and, if it exists, carve-hook from `source` to `<lib_root>/<build id>/`,
  /// unless they are there already. The build ID is a hash of their contents. Returns the folder.
  ///   errors  kNotFound names the missing file; kPermissionDenied: read-only; kFailedPrecondition: noexec
  [[nodiscard]] static Result<std::string> install(const std::string& source, const std::string& lib_root);

  /// Creates the folder with the driver's link names for this driver version, all of which lead to libcarve's objects:
  /// libcuda.so → libcuda.so.1 → libcuda.so.<version>, and the same three for NVML.
  [[nodiscard]] static Result<void> make_links(const std::string& folder, const std::string& driver_version);
  [[nodiscard]] static std::string links_folder(const std::string& folder,
                                                const std::string& driver_version) {
    return folder + "/links-" + (driver_version.empty() ? "any" : driver_version);
  }

  /// Checks that programs can map files of this folder.
  ///   errors  kFailedPrecondition: the file system is mounted noexec; the system's
  [[nodiscard]] static Result<void> check_executable(const std::string& folder);
};

}  // namespace carve::mountns
