#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "app/events/event_recorder.h"
#include "app/node/gpu_objects.h"
#include "base/clock.h"
#include "codec/kubelet/node_pod.h"
#include "port/kube_api.h"

namespace carve::node {

/// The claims of this node's pods. It reads each claim once from the API server to learn its UID. It also writes an
/// event for pods with a node but without an allocation (spec.nodeName set by hand, so no scheduler handled them),
/// because the kubelet only reports that it waits. For one thread.
class PodClaims {
 public:
  PodClaims(KubeApi& api, events::EventRecorder& notices) : api_(api), notices_(notices) {}

  /// Reads the claims that are due, at most kAtOnce. True: there are claims left to read.
  bool step(const std::vector<codec::NodePod>& pods, const std::vector<HeldSlice>& holdings,
            Clock::Time now);
  [[nodiscard]] const ClaimNames& names() const { return names_; }

 private:
  static constexpr std::size_t kAtOnce = 16;
  using Key = std::pair<std::string, std::string>;  // namespace, name
  struct Known {
    std::string uid;
    bool settled = false;  // allocated: nothing more to learn
    Clock::Time next{};
  };
  void read_claim(const codec::NodePod& pod, const Key& key, Known* known, Clock::Time now);
  [[nodiscard]] bool is_of_carve(const std::vector<std::string>& classes, Clock::Time now);
  void forget(const std::vector<codec::NodePod>& pods);

  KubeApi& api_;
  events::EventRecorder& notices_;
  std::map<Key, Known> known_;
  ClaimNames names_;
  std::map<std::string, std::pair<bool, Clock::Time>> classes_;  // whether it is Carve's, and until when that is known
};

}  // namespace carve::node
