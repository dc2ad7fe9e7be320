#pragma once

#include <string>

#include "base/result.h"

namespace carve::mountns {

/// Where libcarve's two objects and the containers' hook lie for slices: a folder per build below the state folder, so
/// that running processes keep the files they have mapped when a new build is installed.
class LibraryStore {
 public:
  /// Copies libcarve-cuda.so, libcarve-nvml.so and, where there is one, carve-hook from `source` into
  /// `<lib_root>/<build id>/` unless they are there, the build id being made from their contents. Returns that folder.
  ///   errors  kNotFound names the file that is missing; kPermissionDenied: noexec or read-only
  [[nodiscard]] static Result<std::string> install(const std::string& source, const std::string& lib_root);

  /// Makes the folder with the driver's link names, all leading to libcarve's objects, for this driver
  /// version: libcuda.so → libcuda.so.1 → libcuda.so.<version>, and NVML's three.
  [[nodiscard]] static Result<void> make_links(const std::string& folder, const std::string& driver_version);
  [[nodiscard]] static std::string links_folder(const std::string& folder,
                                                const std::string& driver_version) {
    return folder + "/links-" + (driver_version.empty() ? "any" : driver_version);
  }

  /// kFailedPrecondition when programs cannot be mapped from there (noexec).
  [[nodiscard]] static Result<void> check_executable(const std::string& folder);
};

}  // namespace carve::mountns
