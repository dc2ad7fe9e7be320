#pragma once

#include <string>
#include <vector>

#include "port/container_runtime.h"

namespace carve::kubelet {

/// The usual CRI sockets of container runtimes, in the order in which they are tried.
[[nodiscard]] const std::vector<std::string>& usual_runtime_sockets();

/// Queries the container runtime over its CRI socket: one connection per query, because queries are rare (every 10 s).
/// Uses the first socket that exists; each call has a deadline of 0.7 s.
///   source  CRI v1; containerd's verbose Status contains its configuration as JSON under "config"
class RuntimeAsked final : public ContainerRuntime {
 public:
  explicit RuntimeAsked(std::vector<std::string> sockets) : sockets_(std::move(sockets)) {}
  Result<RuntimeFacts> ask() override;

 private:
  std::vector<std::string> sockets_;
};

}  // namespace carve::kubelet
