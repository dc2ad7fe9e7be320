#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "app/control/leader/leader.h"
#include "app/control/schedule/node_nominator.h"
#include "app/control/schedule/unschedulable_pods.h"
#include "app/control/state/cluster_model.h"

namespace carve::control {

/// Makes kube-scheduler retry pods that wait for a slice. kube-scheduler retries a pod that an extender refused when an
/// annotation of a Node changes, otherwise only after minutes. The agent's own touch of its Node may come before the
/// model knows that a slice was released, and then has no effect. So the leader touches a Node after its model has seen
/// the release, and only while pods wait. Each touch makes kube-scheduler retry all waiting pods: the more pods wait,
/// the longer the gap until the next touch. It works when the ledger of a node changes, when a touch is due, and every
/// kResync. One thread.
class Requeuer {
 public:
  /// The gap between two touches, by the number of waiting pods. The shortest one covers several cards of one pod that
  /// become free one after the other.
  static constexpr Clock::Duration kLeastGap = std::chrono::milliseconds(100);
  static constexpr Clock::Duration kGap = std::chrono::milliseconds(500);  // the longest gap
  static constexpr Clock::Duration gap_for(std::size_t waiting) {
    return std::clamp<Clock::Duration>(std::chrono::milliseconds(5) * std::min<std::size_t>(waiting, 1000), kLeastGap,
                                       kGap);
  }
  static constexpr const char* kTouched = "elasticgpu.io/slices-free";

  struct World {
    ClusterModel& model;
    const Leader& leader;
    const UnschedulablePods& unschedulable_pods;
    KubeApi& api;
    Clock& clock;
    Log& log;
    /// Steps with this object, before a touch that is due; may be nullptr.
    NodeNominator* node_nominator = nullptr;
  };
  explicit Requeuer(World world)
      : world_(std::move(world)),
        queue_({&world_.model.changes(), &world_.leader.changes(), &world_.unschedulable_pods.changes()}) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// Does what is due now. Also ends what ends by itself in the model: that frees room.
  ///   out     when to call it again, unless something changes before
  Clock::Time step();

  [[nodiscard]] ChangeQueue& changes() { return queue_; }
  /// How many nodes the steps compared, since the start.
  [[nodiscard]] std::uint64_t examined() const { return examined_; }

 private:
  /// True: a node gained room.
  [[nodiscard]] bool look_for_room(const Changes& changes, Clock::Time now);
  [[nodiscard]] bool gained(const ClusterState& cluster, const std::string& node);
  void touch(Clock::Time now);

  const World world_;
  ChangeQueue queue_;
  std::map<std::string, std::shared_ptr<const NodeState>> seen_;  // by node: its state when it was last compared
  std::uint64_t quota_changes_ = 0;  // of the model, when all nodes were last compared
  bool seen_all_ = false;                                         // seen_ contains all nodes
  std::string node_due_;  // a node that gained room and is not touched yet; empty: none
  // The last node that was not touched because no pod waited. kube-scheduler may know a waiting pod that the model does
  // not contain yet, so the next resync tries again.
  std::string skipped_;
  Clock::Time skipped_at_{};
  Clock::Time next_{};  // the earliest time of the next touch
  Clock::Time resync_at_{};
  std::uint64_t examined_ = 0;
};

/// Rewrites an annotation of that Node, which makes kube-scheduler retry waiting pods.
Result<void> touch_node(KubeApi& api, const Clock& clock, const std::string& node);

/// `now` may have room that `before` had not: a slice or a nominated reservation ended; a card was added, recovered,
/// was opened again or got another mode; or the node was opened again, if only to one dialect.
[[nodiscard]] bool gained_room(const NodeState& before, const NodeState& now);

}  // namespace carve::control
