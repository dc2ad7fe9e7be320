#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "app/agent/slice_lifecycle.h"
#include "app/agent/slice_names.h"
#include "base/mutex.h"
#include "core/policy/policy.h"

namespace carve::agent {

/// The slices that this machine grants itself, for `carve run` and `carve slice create`. The calls have the contracts
/// of AgentApi. Safe from any thread.
class LocalSlices {
 public:
  LocalSlices(const AgentConfig& config, const AgentWorld& world, SliceStore& store, OwnerTurns& turns,
              SliceLifecycle& lifecycle, SliceNames& names, const NodeCards& cards, const LibraryLinks& links)
      : config_(config),
        world_(world),
        store_(store),
        turns_(turns),
        lifecycle_(lifecycle),
        names_(names),
        cards_(cards),
        links_(links) {}

  Result<Grant> allocate(const Caller& caller, const AllocateRequest& request, const std::function<bool()>& gone)
      EXCLUDES(mutex_);
  Result<void> join(const Caller& caller, const std::string& slice);
  Result<void> release(const Caller& caller, const std::string& slice, bool kill);
  /// Ends slices with an empty cgroup.
  void reap();
  /// The slices that end with their cgroup.
  [[nodiscard]] std::vector<std::string> ids_in_cgroups() const;
  /// The calls that wait for capacity.
  [[nodiscard]] std::uint32_t waiting() const EXCLUDES(mutex_);

 private:
  Result<Grant> try_allocate(const Caller& caller, const AllocateRequest& request);
  Result<std::vector<Slice>> choose(const SliceStore::State& state, const Caller& caller,
                                    const AllocateRequest& request, const PolicyRow& policy,
                                    const GpuInventory& inventory, const LiveSlice& slice) const;
  void reap_one(const std::string& id);

  const AgentConfig& config_;
  const AgentWorld& world_;
  SliceStore& store_;
  OwnerTurns& turns_;
  SliceLifecycle& lifecycle_;
  SliceNames& names_;
  const NodeCards& cards_;
  const LibraryLinks& links_;

  mutable Mutex mutex_;
  std::uint32_t waiting_ GUARDED_BY(mutex_) = 0;
};

}  // namespace carve::agent
