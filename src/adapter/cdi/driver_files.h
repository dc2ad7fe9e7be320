#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "port/gpu.h"

// Which files of an installed driver go into a container, without its vendor's runtime. Everything is told in the
// host's paths; `host_root` is where they are seen from here.
namespace carve::cdi {

/// What a file of the driver is for. A fraction is given kCompute and kUtility; a whole card the same. The others come
/// by policy: in a fraction what they allocate goes past the library, so that only the second line holds it.
enum class DriverUse : std::uint8_t { kCompute, kUtility, kOpenCl, kVideo, kGraphics, kNgx };

/// "video", … as the configuration spells it.
///   errors  kInvalidArgument names the legal words (kCompute and kUtility are not asked for: they are always there)
[[nodiscard]] Result<std::vector<DriverUse>> parse_uses(const std::string& words);
[[nodiscard]] const char* to_string(DriverUse use);

struct DriverLibrary {
  std::string path;                // on the host: the file whose name ends with the driver's version
  std::vector<std::string> names;  // under which programs look for it: libnvidia-nvvm.so.4, libnvidia-nvvm.so.550.54.15
  DriverUse use = DriverUse::kCompute;
};

struct DriverInstallation {
  std::vector<DriverLibrary> libraries;  // without the two that libcarve stands in front of; sorted by path
  std::vector<std::string> programs;     // nvidia-smi, nvidia-debugdump
  std::vector<std::string> sockets;      // of the driver's daemons that run on this host
};

/// Looks beside the driver's two libraries and in the usual library folders of the same root: a distribution's
/// multiarch folder, /usr/lib64, a driver container's below /run/nvidia/driver. Taken are files of exactly this version
/// and this machine's architecture; empty where there is none (a driver without them serves who needs none).
///   cost    a few folders read; call it once per driver, not per slice
///   source  the lists of libnvidia-container by capability class
[[nodiscard]] DriverInstallation find_driver_files(const DriverFiles& driver, const std::string& version,
                                                   const std::string& host_root);

}  // namespace carve::cdi
