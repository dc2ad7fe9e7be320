#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "app/control/state/cluster_model.h"
#include "app/control/leader/leader.h"
#include "codec/kube/event.h"

namespace carve::control {

/// Assigns cards to pods that got their node without Carve: static pods, pods of a DaemonSet with nodeName, pods of
/// another scheduler. The leader chooses their cards on that node and writes the record with a patch that carries the
/// pod's resourceVersion; the agent waits for the record. If there is no room, or the server accepts no write, an event
/// says why, and the binder retries. It skips pods that have already started (without Carve), pods without slots
/// (another system's, see codec::carries_slots), and pods on a node where Carve manages no card. It works when a pod
/// or its node changes, when a retry is due, and every kResync. One thread.
class StaticPodBinder {
 public:
  static constexpr Clock::Duration kRetry = std::chrono::seconds(5);  // after a refusal or a success
  static constexpr Clock::Duration kRetrySoon =
      std::chrono::seconds(1);  // when the watch will soon show the current pod

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // its calls end within Binder::kWrite
    Clock& clock;
    Log& log;
    codec::DialectSettings settings;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;
  };
  explicit StaticPodBinder(World world)
      : world_(std::move(world)), queue_({&world_.model.changes(), &world_.leader.changes()}) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// Does what is due now.
  ///   out     when to call it again, unless something changes before
  Clock::Time step();

  [[nodiscard]] ChangeQueue& changes() { return queue_; }
  /// How many pods the steps looked at, since the start.
  [[nodiscard]] std::uint64_t examined() const { return examined_; }

 private:
  struct Tried {
    Clock::Time not_before{};
    bool unsure = false;  // it is unknown whether the last write took effect
  };
  /// Remembers the pod if it needs cards, else forgets it.
  void look_at(const std::string& uid, const ClusterModel::Pod& pod);
  void try_to_place(const PodEntry& pod, Tried* tried);
  Result<void> place(const PodEntry& pod);
  Result<void> write(const PodEntry& pod, const Reservation& room);

  World world_;
  ChangeQueue queue_;
  std::map<std::string, Tried> open_;  // by UID: the pods that need cards
  bool behind_ = true;                 // changes were dropped: all unplaced pods must be looked at
  Clock::Time resync_at_{};
  std::uint64_t examined_ = 0;
};

}  // namespace carve::control
