#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// Anybody's CDI file, what a doctor looks at.
struct CdiSpec {
  std::string version;
  std::string kind;                  // vendor/class
  std::vector<std::string> devices;  // their names
  std::vector<std::string>
      host_paths;  // of mounts, device nodes and hooks, all devices and the common edits
};

/// JSON or YAML.
///   errors  kInvalidArgument: neither, or without kind or devices
[[nodiscard]] Result<CdiSpec> parse_cdi_spec(std::string_view text);

}  // namespace carve::codec
