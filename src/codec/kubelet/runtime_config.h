#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carve::codec {

/// containerd's CDI settings; empty where it does not report them or the text is not JSON (CRI-O's is not).
struct RuntimeConfig {
  std::optional<bool> cdi;
  std::vector<std::string> cdi_dirs;
};

/// Tolerant: {"enableCDI": true, "cdiSpecDirs": […]}. A containerd that reports the folders but not the switch (null)
/// has CDI enabled.
[[nodiscard]] RuntimeConfig parse_runtime_config(std::string_view text);

}  // namespace carve::codec
