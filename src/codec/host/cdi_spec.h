#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// The parts of any CDI file that `carve doctor` checks.
struct CdiSpec {
  std::string version;
  std::string kind;                  // vendor/class
  std::vector<std::string> devices;  // the names of the devices
  std::vector<std::string> host_paths;  // of mounts, device nodes and hooks, of all devices and the common edits
};

/// JSON or YAML.
///   errors  kInvalidArgument: neither of them, or without kind or devices
[[nodiscard]] Result<CdiSpec> parse_cdi_spec(std::string_view text);

}  // namespace carve::codec
