#include <algorithm>

#include "app/agent/agent.h"

// The agent's actions after a breach: freeze, kill, or only report.
namespace carve {

void Agent::act(const Breach& breach) {
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
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(breach.slice);
    if (found != slices_.end())
      found->second.remark = std::string(to_string(breach.kind)) + ": " + done;
  }
  note_event(to_string(breach.kind), breach.slice, breach.text + ": " + done);
}

/// Freezes, revokes or ends the slice. Returns a text about the action.
std::string Agent::slow(const Breach& breach, ComputeStep step) {
  if (step == ComputeStep::kKill) return end_slice(breach);
  const bool frozen = throttle(breach);
  if (step == ComputeStep::kRevoke) return revoke(breach.slice) + (frozen ? ", throttled" : "");
  return frozen ? "throttled" : "reported only (its cgroup cannot be frozen here)";
}

/// Sends SIGKILL to the processes that the breach names, each only while it still belongs to the slice.
std::string Agent::end_processes(const Breach& breach) {
  bool any = false;
  std::string error;
  for (const auto pid : breach.pids) {
    const auto killed = world_.processes.kill(pid, [&] { return is_still_of(breach.slice, pid); });
    if (!killed) error = killed.error().what;
    any = any || killed.value_or(false);
  }
  if (!error.empty()) return (any ? "not all could be killed: " : "could not be killed: ") + error;
  return any ? "killed" : "gone before it was killed";
}

/// Removes the slice's pages: calls through the library get no lease and no memory any more. The pages are re-created
/// when the offence is forgotten. Until then the slice keeps its entry in the ledger.
std::string Agent::revoke(const std::string& id) {
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(id);
    if (found == slices_.end()) return "gone before it was revoked";
    found->second.revoked_until = world_.clock.now() + config_.bounds.offences.forgotten_after;
    found->second.samples.clear();  // the figures of the removed pages no longer count
  }
  const auto dropped = world_.pages.drop(id);
  return dropped ? "revoked" : "could not be revoked: " + dropped.error().what;
}

/// Sends SIGKILL to the whole slice. If the slice has a cgroup of its own, the cgroup is killed, including processes
/// that are forked meanwhile. Otherwise every process that was seen of the slice is killed.
std::string Agent::end_slice(const Breach& breach) {
  Breach all = breach;
  bool own = false;
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(breach.slice);
    if (found == slices_.end()) return "gone before it was ended";
    own = !found->second.keep;
    all.pids.insert(all.pids.end(), found->second.registered.begin(), found->second.registered.end());
  }
  if (own && world_.cgroups != nullptr && world_.cgroups->kill(breach.slice)) {
    world_.cgroups->wake();
    return "the slice was ended";
  }
  return end_processes(all);
}

/// True if the process that has this PID now is in the slice. Checked again, because the driver's list and the pages
/// are seconds old and the PID may belong to another process now.
bool Agent::is_still_of(const std::string& slice, std::int32_t pid) const {
  if (world_.cgroups != nullptr && world_.cgroups->slice_of(pid) == slice) return true;
  const auto seen = world_.processes.slices_seen_by(pid);
  if (std::find(seen.begin(), seen.end(), slice) != seen.end()) return true;
  if (const auto member = world_.containers != nullptr ? world_.containers->process(pid) : std::nullopt) {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(slice);
    if (found == slices_.end()) return false;
    const auto& pods = found->second.pods;
    if (std::find(pods.begin(), pods.end(), member->pod) != pods.end()) return true;
  }
  const auto pages = world_.pages.list();  // the arbiter holds a pidfd of each process that sent a hello
  for (const auto& one : pages ? *pages : std::vector<PageSlice>()) {
    if (one.id != slice) continue;
    return std::any_of(one.processes.begin(), one.processes.end(), [&](const auto& own) { return own.pid == pid; });
  }
  return false;
}

/// Freezes once per report (once a second), long enough to bring the mean of that second down to what is allowed.
/// Freezes the slice's own cgroup, or the containers in which its processes were seen. False: nothing was frozen.
bool Agent::throttle(const Breach& breach) {
  const double rest = std::clamp(1.0 - breach.allowed / std::max(breach.seen, 1.0), 0.0, 0.9);
  Frozen frozen{
      world_.clock.now() + std::chrono::milliseconds(static_cast<std::int64_t>(rest * 1000)), {}};
  bool own = false;  // the slice has a cgroup of its own
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(breach.slice);
    own = found != slices_.end() && !found->second.keep;
  }
  if (own) {
    if (world_.cgroups == nullptr || !world_.cgroups->freeze(breach.slice, true)) return false;
  } else {
    for (const auto pid : breach.pids) {
      const auto member =
          world_.containers != nullptr ? world_.containers->process(pid) : std::nullopt;
      if (!is_still_of(breach.slice, pid)) continue;
      if (!member || member->group.empty() || frozen.groups.count(member->group) != 0) continue;
      if (world_.containers->freeze(member->group, true)) frozen.groups.insert(member->group);
    }
    if (frozen.groups.empty()) return false;
  }
  const std::lock_guard lock(state_);
  auto& there = frozen_[breach.slice];
  there.until = frozen.until;
  there.groups.merge(frozen.groups);
  return true;
}

void Agent::thaw() {
  std::map<std::string, Frozen> due;
  {
    const std::lock_guard lock(state_);
    for (auto at = frozen_.begin(); at != frozen_.end();) {
      const auto next = std::next(at);
      if (world_.clock.now() >= at->second.until || slices_.count(at->first) == 0)
        due.insert(frozen_.extract(at));
      at = next;
    }
  }
  for (const auto& [id, frozen] : due) {
    for (const auto& group : frozen.groups)
      static_cast<void>(world_.containers->freeze(group, false));
    if (frozen.groups.empty() && world_.cgroups != nullptr) static_cast<void>(world_.cgroups->freeze(id, false));
  }
}

/// An earlier agent may have died while it throttled.
void Agent::thaw_containers() {
  if (world_.containers == nullptr) return;
  const auto processes = world_.containers->processes();
  std::set<std::string> groups;
  for (const auto& process : processes ? *processes : std::vector<PodProcess>()) {
    if (!process.group.empty() && !slices_of_process(process.pid).empty())
      groups.insert(process.group);
  }
  for (const auto& group : groups) static_cast<void>(world_.containers->freeze(group, false));
}

}  // namespace carve
