#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "app/plugins/node_pods.h"
#include "base/clock.h"
#include "base/result.h"
#include "port/kube_api.h"
#include "port/node_slices.h"

namespace carve::plugins {

/// On a node with a setting `plugins` that does not contain dra: whether claims for Carve's devices are left from a
/// time when it did. While one is left, the kubelet must be able to call NodeUnprepareResources, or the claim's pod
/// stays Terminating forever ("DRA driver gpu.elasticgpu.io is not registered"). The state is in the journal and in the
/// API server, so it survives a restart of the agent. One thread.
class ClaimsLeft {
 public:
  /// After the last claim has ended: the kubelet may still repeat a call.
  static constexpr Clock::Duration kLinger = std::chrono::seconds(5);
  static constexpr Clock::Duration kAskAgain = std::chrono::seconds(5);

  ClaimsLeft(std::string node, const NodeSlices& slices, const NodePods& pods, KubeApi& api)
      : node_(std::move(node)), slices_(slices), pods_(pods), api_(api) {}

  /// Whether a claim is prepared here, or a pod of this node has a claim that is allocated here (the kubelet calls
  /// unprepare after a refused prepare, too), or was less than kLinger ago.
  ///   cost    one read of the API server for each claim of the node's pods, until it is allocated
  [[nodiscard]] bool any(Clock::Time now);
  /// The number of claims that are prepared here.
  [[nodiscard]] std::size_t prepared() const;
  /// Deletes the ResourceSlices of this node, so that kube-scheduler allocates nothing more here. The kubelet does it
  /// 30 s after the driver has gone, and not while it is registered.
  ///   returns the number of deleted slices
  ///   errors  those of the API server
  Result<std::size_t> withdraw_slices();

 private:
  struct Known {
    bool here = false;  // allocated from this node's pool
    bool settled = false;
    Clock::Time next{};
  };
  bool is_here(const std::string& namespace_name, const std::string& claim, Known* known, Clock::Time now);

  std::string node_;
  const NodeSlices& slices_;
  const NodePods& pods_;
  KubeApi& api_;
  std::map<std::pair<std::string, std::string>, Known> known_;  // by pod UID and claim name
  std::optional<Clock::Time> last_;                             // when any() last found a claim
};

/// Why no new claim is prepared on such a node. Names the setting.
inline constexpr const char* kNoNewClaims =
    "this node offers no cards to claims any more: the setting plugins (ConfigMap carve-cluster) does not contain dra; "
    "only claims that were prepared before are served until they end; delete the pod, so that its claim is allocated "
    "on "
    "another node, or add dra to plugins";

}  // namespace carve::plugins
