#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// What a container gets for a slice: the contents of its CDI file. The forms below express it for engines that do not
/// read CDI.
struct Injection {
  struct Mount {
    std::string from;  // on the host
    std::string to;    // in the container
    bool read_only = true;
    friend bool operator==(const Mount&, const Mount&) = default;
  };
  std::vector<std::string> environment;  // NAME=value
  std::vector<std::string> nodes;        // device nodes, with the same path inside
  std::vector<Mount> mounts;
  friend bool operator==(const Injection&, const Injection&) = default;
};

/// Reads the first device of a CDI file that carve wrote. Hooks are left out: no other form can express them, and a
/// container starts without them (docs/containers.md).
///   errors  kInvalidArgument: not such JSON, or anything else that no other form can express
[[nodiscard]] Result<Injection> parse_injection(std::string_view cdi_spec);

/// For `docker run` and `podman run` without CDI devices: one argument per element, in order. Paths with a comma cannot
/// be expressed.
///   errors  kInvalidArgument: a path has a comma or a line break
[[nodiscard]] Result<std::vector<std::string>> docker_arguments(const Injection& injection);

/// For NVIDIA's own runtime, which takes the cards from the environment and mounts the driver itself: whole cards only.
[[nodiscard]] std::vector<std::string> nvidia_environment(const std::vector<std::string>& uuids);

}  // namespace carve::codec
