#pragma once

#include <string>
#include <vector>

#include "port/container_runtime.h"

namespace carve::kubelet {

/// Where runtimes have their CRI socket, in the order in which it is looked for.
[[nodiscard]] const std::vector<std::string>& usual_runtime_sockets();

/// The container runtime over its CRI socket: one connection per question, since one comes every
/// ten seconds. The first socket that is there is asked; each call has 0.7 seconds.
///   source  CRI v1; containerd's Status with verbose carries its configuration as JSON under
///   "config"
class RuntimeAsked final : public ContainerRuntime {
 public:
  explicit RuntimeAsked(std::vector<std::string> sockets) : sockets_(std::move(sockets)) {}
  Result<RuntimeFacts> ask() override;

 private:
  std::vector<std::string> sockets_;
};

}  // namespace carve::kubelet
