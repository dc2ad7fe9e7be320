#include <algorithm>

#include "app/agent/second_line.h"

// The actions after a breach: freeze, revoke, kill, or only report.
namespace carve::agent {

void SecondLine::act(const Breach& breach) {
  const bool compute = breach.kind == BreachKind::kCompute;
  const BreachAction action = compute ? config_.on_compute : config_.on_memory;
  std::string done = "reported only";
  if (compute && action == BreachAction::kEscalate) {
    done = slow(breach, breach.step);
  } else if (compute && (action == BreachAction::kThrottle || (action == BreachAction::kKill && !breach.certain))) {
    done = slow(breach, ComputeStep::kFreeze);
  } else if (action != BreachAction::kReport && breach.kind != BreachKind::kMemoryBrief && !breach.slice.empty()) {
    done = breach.ends_slice ? end_slice(breach) : end_processes(breach);
  }
  store_.change(breach.slice,
                [&](LiveSlice& slice) { slice.remark = std::string(to_string(breach.kind)) + ": " + done; });
  events_.note(to_string(breach.kind), breach.slice, breach.text + ": " + done);
}

/// Freezes, revokes or ends the slice. Returns a text about the action.
std::string SecondLine::slow(const Breach& breach, ComputeStep step) {
  if (step == ComputeStep::kKill) return end_slice(breach);
  const bool frozen = throttle(breach);
  if (step == ComputeStep::kRevoke) return revoke(breach.slice) + (frozen ? ", throttled" : "");
  return frozen ? "throttled" : "reported only (its cgroup cannot be frozen here)";
}

/// Sends SIGKILL to the processes that the breach names, each only while it still belongs to the slice.
std::string SecondLine::end_processes(const Breach& breach) {
  bool any = false;
  std::string error;
  for (const auto pid : breach.pids) {
    const auto killed = world_.processes.kill(pid, [&] { return processes_.is_still_of(breach.slice, pid); });
    if (!killed) error = killed.error().what;
    any = any || killed.value_or(false);
  }
  if (!error.empty()) return (any ? "not all could be killed: " : "could not be killed: ") + error;
  return any ? "killed" : "it had already ended";
}

/// Removes the slice's pages: calls through the library get no lease and no memory any more. The pages are re-created
/// when the offence is forgotten. Until then the slice keeps its entry in the ledger.
std::string SecondLine::revoke(const std::string& id) {
  const bool there = store_.change(id, [&](LiveSlice& slice) {
    slice.revoked_until = world_.clock.now() + config_.bounds.offences.forgotten_after;
    slice.samples.clear();  // the figures of the removed pages no longer count
  });
  if (!there) return "it had already ended";
  const auto dropped = pages_.revoke(id);
  return dropped ? "revoked" : "could not be revoked: " + dropped.error().what;
}

/// Sends SIGKILL to the whole slice. If the slice has its own cgroup, the cgroup is killed, including processes that
/// are forked meanwhile. Otherwise every process that was observed in the slice is killed.
std::string SecondLine::end_slice(const Breach& breach) {
  Breach all = breach;
  const auto slice = store_.find(breach.slice);
  if (!slice) return "it had already ended";
  all.pids.insert(all.pids.end(), slice->registered.begin(), slice->registered.end());
  if (!slice->keep && world_.cgroups != nullptr && world_.cgroups->kill(breach.slice)) {
    world_.cgroups->wake();
    return "the slice was ended";
  }
  return end_processes(all);
}

/// Freezes once per report (once a second), for long enough that the mean of that second is what is allowed. Freezes
/// the slice's own cgroup, or the containers in which its processes were observed. False: nothing was frozen.
bool SecondLine::throttle(const Breach& breach) {
  const double rest = std::clamp(1.0 - breach.allowed / std::max(breach.seen, 1.0), 0.0, 0.9);
  Frozen frozen{
      world_.clock.now() + std::chrono::milliseconds(static_cast<std::int64_t>(rest * 1000)), {}};
  const auto slice = store_.find(breach.slice);
  const bool own = slice && !slice->keep;  // it has a cgroup of its own
  if (own) {
    if (world_.cgroups == nullptr || !world_.cgroups->freeze(breach.slice, true)) return false;
  } else {
    for (const auto pid : breach.pids) {
      const auto member =
          world_.containers != nullptr ? world_.containers->process(pid) : std::nullopt;
      if (!processes_.is_still_of(breach.slice, pid)) continue;
      if (!member || member->group.empty() || frozen.groups.count(member->group) != 0) continue;
      if (world_.containers->freeze(member->group, true)) frozen.groups.insert(member->group);
    }
    if (frozen.groups.empty()) return false;
  }
  const MutexLock lock(mutex_);
  auto& there = frozen_[breach.slice];
  there.until = frozen.until;
  there.groups.merge(frozen.groups);
  return true;
}

void SecondLine::thaw() {
  const auto living = store_.ids_of([](const LiveSlice&) { return true; });  // sorted
  std::map<std::string, Frozen> due;
  {
    const MutexLock lock(mutex_);
    for (auto at = frozen_.begin(); at != frozen_.end();) {
      const auto next = std::next(at);
      const bool ended = !std::binary_search(living.begin(), living.end(), at->first);
      if (ended || world_.clock.now() >= at->second.until) due.insert(frozen_.extract(at));
      at = next;
    }
  }
  for (const auto& [id, frozen] : due) {
    for (const auto& group : frozen.groups)
      static_cast<void>(world_.containers->freeze(group, false));
    if (frozen.groups.empty() && world_.cgroups != nullptr) static_cast<void>(world_.cgroups->freeze(id, false));
  }
}

void SecondLine::thaw_containers() {
  if (world_.containers == nullptr) return;
  const auto processes = world_.containers->processes();
  std::set<std::string> groups;
  for (const auto& process : processes ? *processes : std::vector<PodProcess>()) {
    if (!process.group.empty() && !processes_.slices_of(process.pid).empty())
      groups.insert(process.group);
  }
  for (const auto& group : groups) static_cast<void>(world_.containers->freeze(group, false));
}

}  // namespace carve::agent
