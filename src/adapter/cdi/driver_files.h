#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/gpu.h"

// The files of an installed driver that a container needs, found without the vendor's runtime. All paths are the
// host's; `host_root` is the prefix under which this process sees them.
namespace carve::cdi {

/// The purpose of a driver file. Fractions and whole cards get kCompute and kUtility. Policy adds the others: in a
/// fraction their allocations bypass libcarve, so that only the second line enforces the limit on them.
enum class DriverUse : std::uint8_t { kCompute, kUtility, kOpenCl, kVideo, kGraphics, kNgx };

/// Parses words like "video" from the configuration.
///   errors  kInvalidArgument names the legal words. "compute" and "utility" are not legal, because they are always
///   included
[[nodiscard]] Result<std::vector<DriverUse>> parse_uses(const std::string& words);
[[nodiscard]] const char* to_string(DriverUse use);

struct DriverLibrary {
  std::string path;                // on the host: the file with a name that ends with the driver's version
  std::vector<std::string> names;  // by which programs load it: libnvidia-nvvm.so.4, libnvidia-nvvm.so.550.54.15
  DriverUse use = DriverUse::kCompute;
};

struct DriverInstallation {
  std::vector<DriverLibrary> libraries;  // without libcuda and NVML, which libcarve replaces; sorted by path
  std::vector<std::string> programs;     // nvidia-smi, nvidia-debugdump
  std::vector<std::string> sockets;      // of the driver's daemons that run on the host
};

/// Searches the folders of the driver's two libraries and the usual library folders of the same root: a distribution's
/// multiarch folder, /usr/lib64, and those of a driver container below /run/nvidia/driver. The result has only files of
/// exactly this version and this machine's architecture. It is empty when there are none, which is not an error.
///   cost    reads a few folders; call it once per driver, not per slice
///   source  the lists of libnvidia-container by capability class
[[nodiscard]] DriverInstallation find_driver_files(const DriverFiles& driver, const std::string& version,
                                                   const std::string& host_root);

}  // namespace carve::cdi
