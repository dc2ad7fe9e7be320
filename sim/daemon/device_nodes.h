#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carve::sim {

/// Harmless device nodes (with /dev/null's numbers) at the paths of a real driver's nodes, for programs that look for
/// /dev/nvidia0. Creates only nodes that do not exist, and removes the nodes that it created.
class DeviceNodes {
 public:
  DeviceNodes() = default;
  DeviceNodes(const DeviceNodes&) = delete;
  DeviceNodes& operator=(const DeviceNodes&) = delete;
  ~DeviceNodes();

  /// nvidiactl, nvidia-uvm, nvidia-uvm-tools and nvidia0 … nvidia<cards-1> under `folder`.
  ///   errors  false with errno set at the first node that does not exist and cannot be created
  bool make(const std::string& folder, std::uint32_t cards);

 private:
  std::vector<std::string> made_;
};

}  // namespace carve::sim
