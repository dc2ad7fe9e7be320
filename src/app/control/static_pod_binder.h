#pragma once

#include <functional>
#include <map>
#include <stop_token>
#include <string>

#include "app/control/cluster_model.h"
#include "app/control/leader.h"
#include "codec/dra/event.h"

namespace carve::control {

/// Pods that somebody else gave a node (static ones, a DaemonSet's with nodeName, another scheduler's): the leader
/// chooses their cards there and writes the record by a patch of this very pod as it was read; the agent waits for it.
/// Where there is no room, or the server takes no write, an event says why, and it is tried again. Left alone is what
/// has started (it came without us), what has no slots (another system's: codec::carries_slots), and what is on a node
/// that has no card of ours. One thread.
class StaticPodBinder {
 public:
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(300);
  static constexpr Clock::Duration kRetry = std::chrono::seconds(5);  // after a refusal, or when it is done
  static constexpr Clock::Duration kRetrySoon = std::chrono::seconds(1);   // where the watch will show what it is now

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
    bool unsure = false;  // of the last write it is not known whether it was done
  };
  std::map<std::string, Tried> tried_;  // by UID
};

}  // namespace carve::control
