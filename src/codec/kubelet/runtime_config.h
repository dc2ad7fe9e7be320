#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// What containerd's configuration says of CDI; nothing where it says nothing, or is no JSON
/// (CRI-O's is not).
struct RuntimeConfig {
  std::optional<bool> cdi;
  std::vector<std::string> cdi_dirs;
};

/// Reads it tolerantly: {"enableCDI": true, "cdiSpecDirs": […]}. A containerd that names the
/// folders and not the switch (null) has it on.
[[nodiscard]] RuntimeConfig parse_runtime_config(std::string_view text);

}  // namespace carve::codec
