#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "app/control/cluster_model.h"
#include "app/control/leader.h"

namespace carve::control {

/// Wakes pods that wait for a slice. kube-scheduler asks again for a pod that an extender refused when an annotation
/// of a Node changes, and not before minutes otherwise; the agent's own touch may come before the model knows what
/// became free, and is then in vain. So the leader touches a Node after its model has learned it, and only while
/// somebody waits. Each touch makes kube-scheduler try all who wait: the more, the longer until the next. One thread.
class Requeuer {
 public:
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(50);
  /// Between two touches, where so many wait: what several cards of one pod need that become free one after the other.
  static constexpr Clock::Duration kLeastGap = std::chrono::milliseconds(100);
  static constexpr Clock::Duration kGap = std::chrono::milliseconds(500);  // the longest
  static constexpr Clock::Duration gap_for(std::size_t waiting) {
    return std::clamp<Clock::Duration>(std::chrono::milliseconds(5) * std::min<std::size_t>(waiting, 1000), kLeastGap,
                                       kGap);
  }
  static constexpr const char* kTouched = "elasticgpu.io/slices-free";

  /// `before` is called ahead of every touch that is due, and else at each look: whether some node gained room, and it
  /// may name a node that is to be touched. May be empty.
  using BeforeTouch = std::function<std::string(bool gained)>;
  Requeuer(const ClusterModel& model, const Leader& leader, KubeApi& api, Clock& clock, Log& log, BeforeTouch before = {})
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
  std::string node_due_;  // a node on which something became free; empty: none
  Clock::Time next_{};
};

/// An annotation of that Node is written anew: kube-scheduler asks again for pods that wait.
Result<void> touch_node(KubeApi& api, const Clock& clock, const std::string& node);

/// More can be put on `now` than on `before`: a slice went, a card came, healed or was opened again, or the node was,
/// be it to one dialect.
[[nodiscard]] bool gained_room(const NodeState& before, const NodeState& now);

}  // namespace carve::control
