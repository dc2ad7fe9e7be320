#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// What a container is given of a slice: the content of its CDI file, which every form below says
/// again for engines that do not read that.
struct Injection {
  struct Mount {
    std::string from;  // on the host
    std::string to;    // in the container
    bool read_only = true;
    friend bool operator==(const Mount&, const Mount&) = default;
  };
  std::vector<std::string> environment;  // NAME=value
  std::vector<std::string> nodes;        // device nodes, the same path inside
  std::vector<Mount> mounts;
  friend bool operator==(const Injection&, const Injection&) = default;
};

/// The first device's of a CDI file that carve wrote.
/// Hooks are left out: no other form can say them, and a container starts without (docs/containers.md).
///   errors  kInvalidArgument: no such JSON; anything else that no other form can say
[[nodiscard]] Result<Injection> parse_injection(std::string_view cdi_spec);

/// For `docker run` and `podman run` without container devices: one argument a line, in their
/// order. Paths with a comma cannot be said that way.
///   errors  kInvalidArgument: a path with a comma or a line break in it
[[nodiscard]] Result<std::vector<std::string>> docker_arguments(const Injection& injection);

/// For NVIDIA's own runtime, which takes the cards from the environment and mounts the driver
/// itself: whole cards only.
[[nodiscard]] std::vector<std::string> nvidia_environment(const std::vector<std::string>& uuids);

}  // namespace carve::codec
