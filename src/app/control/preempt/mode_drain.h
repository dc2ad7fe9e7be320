#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "app/control/leader/leader.h"
#include "app/control/state/cluster_model.h"
#include "codec/kube/event.h"

namespace carve::control {

/// Empties the cards of nodes with the annotation codec::kCardModeDrain: the leader evicts pods with slices that the
/// mode of their card does not permit. It uses the Eviction API, so a PodDisruptionBudget can delay it; the eviction is
/// repeated every kAgain. Without the annotation such pods stay until they end. Static pods, and claims of the DRA
/// driver, are not evicted. It works when the ledger of a node changes, and every kResync. One thread.
class ModeDrain {
 public:
  static constexpr Clock::Duration kAgain = std::chrono::seconds(10);  // from one eviction of a pod to the next attempt
  static constexpr std::size_t kPerStep = 16;                          // pods that are evicted in one step

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // its calls end within Binder::kWrite
    Clock& clock;
    Log& log;
    std::function<void(codec::EventNote)> post_event;  // may be empty
  };
  explicit ModeDrain(World world)
      : world_(std::move(world)), queue_({&world_.model.changes(), &world_.leader.changes()}) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// Does what is due now.
  ///   out     when to call it again, unless something changes before
  Clock::Time step();

  [[nodiscard]] ChangeQueue& changes() { return queue_; }

 private:
  /// A pod with a slice that its card's mode does not permit.
  struct Misplaced {
    std::string node;
    std::string why;
  };
  void look_at(const std::string& node, const NodeState& state);
  void evict(const PodEntry& pod, const std::string& why);

  const World world_;
  ChangeQueue queue_;
  Clock::Time resync_at_{};
  std::map<std::string, Misplaced> misplaced_;     // by UID
  std::map<std::string, Clock::Time> not_before_;  // by UID
};

}  // namespace carve::control
