#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "port/kubelet.h"

namespace carve::kubelet {

/// The kubelet's PodResources socket and its device checkpoint, as the port. One connection, made anew when
/// the kubelet's socket is another one. Safe from any thread; calls are serialised.
class KubeletAsked final : public PodResources {
 public:
  /// `root`: the kubelet's folder: pod-resources/kubelet.sock and device-plugins/kubelet_internal_checkpoint
  /// below `root` and `device_plugins`.
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
