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
///   errors  kInvalidArgument: no JSON object
[[nodiscard]] Result<DockerConfig> parse_docker_config(std::string_view text);

/// `key = value` lines of a TOML file, whatever table they stand in, values without their quotes;
/// the last one of a name wins. That is all that is needed of containerd's and the NVIDIA runtime's
/// files, and it never fails: what is not such a line is passed over.
[[nodiscard]] std::map<std::string, std::string> toml_settings(std::string_view text);

/// Installed packages of dpkg's status file: name → version.
[[nodiscard]] std::map<std::string, std::string> installed_packages(std::string_view text);

}  // namespace carve::codec
