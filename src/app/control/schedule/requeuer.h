#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "app/control/state/cluster_model.h"
#include "app/control/leader/leader.h"

namespace carve::control {

/// Makes kube-scheduler retry pods that wait for a slice. kube-scheduler retries a pod that an extender refused when an
/// annotation of a Node changes, otherwise only after minutes. The agent's own touch of its Node may come before the
/// model knows that a slice was released, and then has no effect. So the leader touches a Node after its model has seen
/// the release, and only while pods wait. Each touch makes kube-scheduler retry all waiting pods: the more pods wait,
/// the longer the gap until the next touch. One thread.
class Requeuer {
 public:
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(50);
  /// The gap between two touches, by the number of waiting pods. The shortest one covers several cards of one pod that
  /// become free one after the other.
  static constexpr Clock::Duration kLeastGap = std::chrono::milliseconds(100);
  static constexpr Clock::Duration kGap = std::chrono::milliseconds(500);  // the longest gap
  static constexpr Clock::Duration gap_for(std::size_t waiting) {
    return std::clamp<Clock::Duration>(std::chrono::milliseconds(5) * std::min<std::size_t>(waiting, 1000), kLeastGap,
                                       kGap);
  }
  static constexpr const char* kTouched = "elasticgpu.io/slices-free";

  /// Called at each step, before a touch that is due. `gained`: a node gained room since the previous step. It returns
  /// a node to touch; empty: none. May be empty.
  using BeforeTouch = std::function<std::string(bool gained)>;
  Requeuer(const ClusterModel& model, const Leader& leader, KubeApi& api, Clock& clock, Log& log,
           BeforeTouch before = {})
      : model_(model), leader_(leader), api_(api), clock_(clock), log_(log), before_touch_(std::move(before)) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  void step();

 private:
  [[nodiscard]] bool poll();

  const ClusterModel& model_;
  const Leader& leader_;
  KubeApi& api_;
  Clock& clock_;
  Log& log_;
  const BeforeTouch before_touch_;
  std::shared_ptr<const ClusterState> last_state_;
  std::string node_due_;  // a node that gained room and is not touched yet; empty: none
  Clock::Time next_{};
};

/// Rewrites an annotation of that Node, which makes kube-scheduler retry waiting pods.
Result<void> touch_node(KubeApi& api, const Clock& clock, const std::string& node);

/// `now` may have room that `before` had not: a slice or a nominated reservation ended; a card was added, recovered or
/// was opened again; or the node was opened again, if only to one dialect.
[[nodiscard]] bool gained_room(const NodeState& before, const NodeState& now);

}  // namespace carve::control
