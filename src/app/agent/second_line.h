#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/local_slices.h"
#include "app/agent/process_slices.h"
#include "app/agent/rescue_watch.h"
#include "app/agent/slice_lifecycle.h"
#include "app/agent/unexplained.h"
#include "app/agent/watchdog.h"
#include "base/mutex.h"

namespace carve::agent {

/// The second line: acts against processes that bypass libcarve. It consists of the watchdog's rounds (watch.cc), the
/// search for the holder of unexplained memory (accuse.cc), and the actions after a breach (act.cc). One thread, the
/// watch thread, calls round() and needs_frequent_rounds(). look_at_pages() and thaw_containers() are called before the
/// threads start. seen() and thaw() are safe from any thread.
class SecondLine {
 public:
  /// The observations of the last round.
  struct Seen {
    std::vector<GpuUsage> usage;
    std::vector<Sighting> sightings;
  };
  SecondLine(const AgentConfig& config, const AgentWorld& world, SliceStore& store, SliceLifecycle& lifecycle,
             LocalSlices& local, ArbiterPages& pages, NodeCards& cards, const ProcessSlices& processes,
             EventLog& events)
      : config_(config),
        world_(world),
        store_(store),
        lifecycle_(lifecycle),
        local_(local),
        pages_(pages),
        cards_(cards),
        processes_(processes),
        events_(events),
        watchdog_(config.bounds),
        unexplained_(config.unexplained) {}

  /// One round: observe, judge (watchdog.h), act, correct. Takes as long as the driver's library does.
  void round() EXCLUDES(mutex_);
  /// Reads the arbiter's list and reconciles it with the slices. True: the arbiter answered.
  bool look_at_pages();
  /// True if a slice has short breaches that still count: such a slice must be observed more often.
  [[nodiscard]] bool needs_frequent_rounds() const { return watchdog_.needs_frequent_rounds(world_.clock.now()); }
  [[nodiscard]] Seen seen() const EXCLUDES(mutex_);
  /// Thaws groups that were frozen for long enough.
  void thaw() EXCLUDES(mutex_);
  /// At the start: thaws containers with slices, because an earlier agent may have died while it throttled.
  void thaw_containers();

 private:
  struct Frozen {
    Clock::Time until;
    std::set<std::string> groups;  // of containers; empty: the slice's own cgroup
  };
  // watch.cc
  void note_gpu_state();
  [[nodiscard]] std::vector<WatchedSlice> watched_slices(bool pages_known);
  void correct_overheads(const std::vector<WatchedSlice>& watched, const std::vector<Sighting>& sightings);
  // accuse.cc
  [[nodiscard]] std::vector<CardHolder> holders_of_card(const CardId& card, const std::vector<Sighting>& sightings);
  void look_for_unexplained(const std::vector<GpuUsage>& usage, const std::vector<WatchedSlice>& watched,
                            const std::vector<Sighting>& sightings);
  // act.cc
  void act(const Breach& breach);
  bool throttle(const Breach& breach) EXCLUDES(mutex_);
  std::string end_processes(const Breach&breach), end_slice(const Breach&breach);
  std::string slow(const Breach&breach, ComputeStep step), revoke(const std::string&id);

  const AgentConfig& config_;
  const AgentWorld& world_;
  SliceStore& store_;
  SliceLifecycle& lifecycle_;
  LocalSlices& local_;
  ArbiterPages& pages_;
  NodeCards& cards_;
  const ProcessSlices& processes_;
  EventLog& events_;

  // Used by the watch thread only.
  Watchdog watchdog_;
  UnexplainedMemory unexplained_;
  RescueWatch rescues_;
  std::map<std::pair<std::string, std::size_t>, Bytes> overheads_;  // of the last round
  GpuState gpu_state_seen_ = GpuState::kStarting;

  mutable Mutex mutex_;
  Seen seen_ GUARDED_BY(mutex_);
  std::map<std::string, Frozen> frozen_ GUARDED_BY(mutex_);  // by slice
};

}  // namespace carve::agent
