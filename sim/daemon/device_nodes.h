#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace carve::sim {

/// Harmless device nodes (/dev/null's numbers) where a driver's would be, so that what looks for
/// /dev/nvidia0 finds it. Makes only what is not there, and removes what it made.
class DeviceNodes {
 public:
  DeviceNodes() = default;
  DeviceNodes(const DeviceNodes&) = delete;
  DeviceNodes& operator=(const DeviceNodes&) = delete;
  ~DeviceNodes();

  /// nvidiactl, nvidia-uvm, nvidia-uvm-tools and nvidia0 … nvidia<cards-1> under `folder`.
  ///   errors  false with errno set at the first node that is neither there nor can be made
  bool make(const std::string& folder, std::uint32_t cards);

 private:
  std::vector<std::string> made_;
};

}  // namespace carve::sim
