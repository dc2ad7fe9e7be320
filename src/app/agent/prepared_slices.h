#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/process_slices.h"
#include "app/agent/slice_lifecycle.h"
#include "app/agent/slice_names.h"
#include "base/mutex.h"
#include "port/node_slices.h"

namespace carve::agent {

/// The slices of the kubelet plugins. The decision was made elsewhere; this node carries it out, or returns the reason
/// why it cannot. The calls have the contracts of NodeSlices. Safe from any thread. Calls for different owners wait for
/// each other only for the journal's sync and the arbiter's connection.
class PreparedSlices {
 public:
  PreparedSlices(const AgentConfig& config, const AgentWorld& world, SliceStore& store, OwnerTurns& turns,
                 SliceLifecycle& lifecycle, SliceNames& names, const LibraryLinks& links,
                 const ProcessSlices& processes)
      : config_(config),
        world_(world),
        store_(store),
        turns_(turns),
        lifecycle_(lifecycle),
        names_(names),
        links_(links),
        processes_(processes) {}

  // prepare.cc
  std::string promise_device();
  Result<Prepared> prepare(const PrepareRequest& request);
  // ending.cc
  Result<void> unprepare(const Owner& owner);
  /// Ends the slices that were unprepared while a process still ran, by this agent or an earlier one. Acts at most once
  /// a second. Skips an owner that is being changed now; the next call handles it.
  void end_ended() EXCLUDES(mutex_);

 private:
  // prepare.cc
  Result<std::string> device_id_for(const PrepareRequest& request);
  Result<Prepared> prepare_again(const OwnerTurns::Turn& turn, const LiveSlice& there, const LiveSlice& wanted);
  Result<Prepared> prepare_new(const OwnerTurns::Turn& turn, LiveSlice slice);
  [[nodiscard]] std::optional<LiveSlice> part_of(const Owner& owner, const std::string& part) const;
  Result<void> remember_pods(const OwnerTurns::Turn& turn, const LiveSlice& there,
                             const std::vector<std::string>& pods);
  // ending.cc
  Result<void> end_owner(const OwnerTurns::Turn& turn, const Result<std::vector<PodProcess>>& pods);
  Result<void> note_ending(const OwnerTurns::Turn& turn, std::set<std::string>* ids);
  void kill_left_behind(const Owner& owner, const std::vector<PodProcess>& pods);
  bool is_left_behind(const Owner& owner, Clock::Time now) EXCLUDES(mutex_);

  const AgentConfig& config_;
  const AgentWorld& world_;
  SliceStore& store_;
  OwnerTurns& turns_;
  SliceLifecycle& lifecycle_;
  SliceNames& names_;
  const LibraryLinks& links_;
  const ProcessSlices& processes_;

  Mutex mutex_;
  Clock::Time end_again_ GUARDED_BY(mutex_){};
  // Claims of ended pods that still have processes.
  std::map<Owner, Clock::Time> ending_since_ GUARDED_BY(mutex_);
};

}  // namespace carve::agent
