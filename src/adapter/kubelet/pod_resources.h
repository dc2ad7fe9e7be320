#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "port/kubelet.h"

namespace carve::kubelet {

/// Implements the port with the kubelet's PodResources socket and its device checkpoint. It has one connection, which
/// is re-created when the kubelet's socket was re-created. Safe from any thread; calls are serialised.
class KubeletAsked final : public PodResources {
 public:
  /// `root`: the kubelet's folder, which contains pod-resources/kubelet.sock. `device_plugins`: the folder that
  /// contains kubelet_internal_checkpoint.
  KubeletAsked(const std::string& root, const std::string& device_plugins);
  ~KubeletAsked() override;
  Result<std::vector<SlotHolder>> holders(const std::string& resource) override;
  Result<std::vector<SlotEntry>> checkpoint(const std::string& resource) override;
  Result<std::map<std::string, std::size_t>> registered() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace carve::kubelet
