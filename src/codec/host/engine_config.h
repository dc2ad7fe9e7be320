#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// Docker's daemon.json.
struct DockerConfig {
  std::string default_runtime;
  std::vector<std::string> runtimes;
  std::optional<bool> cdi;  // features.cdi
};
///   errors  kInvalidArgument: not a JSON object
[[nodiscard]] Result<DockerConfig> parse_docker_config(std::string_view text);

/// The `key = value` lines of a TOML file in any table, values without their quotes; the last line of a name wins.
/// containerd's and the NVIDIA runtime's files need no more. It never fails: all other lines are skipped.
[[nodiscard]] std::map<std::string, std::string> toml_settings(std::string_view text);

/// Installed packages of dpkg's status file: name → version.
[[nodiscard]] std::map<std::string, std::string> installed_packages(std::string_view text);

}  // namespace carve::codec
