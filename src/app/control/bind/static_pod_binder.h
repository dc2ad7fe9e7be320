#pragma once

#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "app/control/state/cluster_model.h"
#include "app/control/leader/leader.h"
#include "codec/dra/event.h"

namespace carve::control {

/// Assigns cards to pods that got their node without Carve: static pods, pods of a DaemonSet with nodeName, pods of
/// another scheduler. The leader chooses their cards on that node and writes the record with a patch that carries the
/// pod's resourceVersion; the agent waits for the record. If there is no room, or the server accepts no write, an event
/// says why, and the binder retries. It skips pods that have already started (without Carve), pods without slots
/// (another system's, see codec::carries_slots), and pods on a node where Carve manages no card. One thread.
class StaticPodBinder {
 public:
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(300);
  static constexpr Clock::Duration kRetry = std::chrono::seconds(5);  // after a refusal or a success
  static constexpr Clock::Duration kRetrySoon =
      std::chrono::seconds(1);  // when the watch will soon show the current pod

  struct World {
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // whose calls end within Binder::kWrite
    Clock& clock;
    Log& log;
    codec::DialectSettings settings;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;
  };
  explicit StaticPodBinder(World world) : world_(std::move(world)) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  void step();

 private:
  Result<void> place(const PodEntry& pod);
  Result<void> write(const PodEntry& pod, const Reservation& room);

  World world_;
  struct Tried {
    Clock::Time not_before{};
    bool unsure = false;  // it is unknown whether the last write took effect
  };
  std::map<std::string, Tried> tried_;  // by UID
};

}  // namespace carve::control
