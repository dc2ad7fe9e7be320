#include "app/agent/agent.h"

#include <fmt/core.h>

#include <algorithm>

namespace carve {
namespace {
constexpr std::chrono::milliseconds kReapEvery{200};
constexpr std::chrono::milliseconds kWatchEvery{250};
constexpr std::chrono::milliseconds kWatchClosely{50};  // while a slice has short breaches
constexpr int kIdleRounds = 4;
constexpr std::chrono::milliseconds kWaitStep{200};
}  // namespace

Agent::Agent(AgentConfig config, AgentWorld world)
    : config_(std::move(config)),
      world_(std::move(world)),
      watchdog_(config_.bounds),
      unexplained_(config_.unexplained),
      books_(config_.xid_policy) {}

Result<Grant> Agent::allocate(const Caller& caller, const AllocateRequest& request,
                              const std::function<bool()>& gone) {
  CARVE_TRY_VOID(joined(validate(request.request)));
  const auto start = world_.clock.now();
  bool counted = false;
  bool looked_again = false;
  Result<Grant> result;
  for (;;) {
    {
      const std::lock_guard commit(commit_);
      result = try_allocate(caller, request);
    }
    const bool no_room = !result && (result.error().code == Code::kResourceExhausted ||
                                     result.error().code == Code::kPermissionDenied);
    if (no_room && !looked_again) {
      // A slice that blocks this request may have ended a moment ago: no request is refused because of an ended slice.
      looked_again = true;
      reap();
      continue;
    }
    const bool full = !result && result.error().code == Code::kResourceExhausted;
    if (!full || !request.wait) break;
    const auto waited = world_.clock.now() - start;
    if (waited >= *request.wait) {
      result = fail(Code::kDeadlineExceeded, "waited " + std::to_string(request.wait->count() / 1000) +
                                                 " s, it still does not fit: " + result.error().what);
      break;
    }
    if (gone && gone()) {
      result = fail(Code::kCancelled, "the one who asked is gone");
      break;
    }
    std::unique_lock lock(state_);
    if (!counted) ++waiting_;
    counted = true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*request.wait - waited);
    freed_.wait_for(lock,
                    std::min<std::chrono::milliseconds>(kWaitStep, left + std::chrono::milliseconds(1)));
  }
  if (counted) {
    const std::lock_guard lock(state_);
    --waiting_;
  }
  return result;
}

Result<void> Agent::join(const Caller& caller, const std::string& slice) {
  const std::lock_guard commit(commit_);
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(slice);
    if (found == slices_.end()) return fail(Code::kNotFound, "no slice " + slice + " (it may have ended)");
    CARVE_TRY_VOID(check_owner(caller, found->second.uid, slice));
    if (found->second.keep) {
      return fail(Code::kFailedPrecondition,
                  "slice " + slice + " is a device for containers; nothing can join it");
    }
  }
  if (caller.pid <= 0) {
    return fail(Code::kFailedPrecondition,
                "the process that asks is in another PID namespace: run it on the host");
  }
  if (world_.cgroups == nullptr) return fail(Code::kUnavailable, world_.cgroup_error);
  // The caller's children have its connection too. When the caller has ended, its PID may belong to another process,
  // even to one of root.
  const auto gone = [&caller] { return caller.gone && caller.gone(); };
  const auto refused = [&] {
    return fail(Code::kNotFound, fmt::format("join {}: process {}, which connected, is gone", slice, caller.pid));
  };
  if (gone()) return refused();
  if (auto moved = world_.cgroups->join(slice, caller.pid); !moved)
    return fail_in("join " + slice, moved.error());
  if (gone()) {  // it ended before or after the move: the process that has its PID now must not stay in the cgroup
    if (auto expelled = world_.cgroups->expel(slice, caller.pid); !expelled) {
      world_.log.error("a process that did not ask may be in a slice",
                       {{"slice", slice}, {"pid", caller.pid}, {"error", expelled.error().what}});
    }
    return refused();
  }
  const std::lock_guard lock(state_);
  LiveSlice& joined = slices_.at(slice);
  joined.joined = true;
  joined.asker_gone = {};  // from now on the cgroup shows whether the slice is in use
  return {};
}

Result<void> Agent::release(const Caller& caller, const std::string& slice, bool kill) {
  const std::lock_guard commit(commit_);
  bool keep = false;
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(slice);
    if (found == slices_.end()) return fail(Code::kNotFound, "no slice " + slice);
    CARVE_TRY_VOID(check_owner(caller, found->second.uid, slice));
    if (!found->second.local()) {
      return fail(Code::kFailedPrecondition, "slice " + slice + " belongs to " + found->second.name +
                                                 ": it ends when Kubernetes ends its pod");
    }
    keep = found->second.keep;
    if (keep && !kill && !found->second.registered.empty()) {
      return fail(Code::kFailedPrecondition, "slice " + slice + " is in use by process " +
                                                 std::to_string(found->second.registered.front()) +
                                                 " (--force deletes it nevertheless)");
    }
  }
  if (!keep && world_.cgroups != nullptr) {
    const auto populated = world_.cgroups->populated(slice);
    if (!populated && populated.error().code != Code::kNotFound)
      return fail_in("whether slice " + slice + " has processes", populated.error());
    if (populated && *populated) {
      if (!kill)
        return fail(Code::kFailedPrecondition,
                    "slice " + slice + " still has processes (--force kills them)");
      CARVE_TRY_VOID(world_.cgroups->kill(slice));
      world_.cgroups->wake();
      return {};  // the reaper ends the slice when the last process has ended
    }
  }
  finish(slice, "released");
  const std::lock_guard lock(state_);
  if (!journal_error_.empty()) return fail(Code::kUnavailable, "journal: " + journal_error_);
  return {};
}

std::vector<std::string> Agent::ids_in_cgroups() const {
  std::vector<std::string> ids;
  const std::lock_guard lock(state_);
  for (const auto& [id, slice] : slices_) {
    if (!slice.keep) ids.push_back(id);
  }
  return ids;
}

void Agent::reap() {
  thaw();
  for (const auto& id : ids_in_cgroups()) {
    if (world_.cgroups == nullptr) break;
    const auto populated = world_.cgroups->populated(id);
    if (populated && *populated) continue;
    const std::lock_guard commit(commit_);
    // Checked again under the lock, because a process may have joined in between.
    const auto again = world_.cgroups->populated(id);
    if (again && *again) continue;
    if (!again && again.error().code != Code::kNotFound) continue;  // unknown is not empty; checked again soon
    bool ended = false;
    std::function<bool()> asker_gone;
    {
      const std::lock_guard lock(state_);
      const auto found = slices_.find(id);
      if (found == slices_.end()) continue;
      asker_gone = found->second.asker_gone;
      const auto allowed = found->second.restored ? config_.rejoin_time : config_.start_time;
      const bool late = world_.clock.now() - found->second.made > allowed;
      ended = found->second.joined || late || (!again && again.error().code == Code::kNotFound);
    }
    // A caller that ended before it joined has left no process that could join.
    if (!ended && asker_gone && asker_gone()) {
      finish(id, "the one who asked for it is gone");
      continue;
    }
    if (ended) finish(id, "its cgroup is empty");
  }
  const std::lock_guard commit(commit_);
  retry_drops();
  end_ended();
  if (!config_.gives_cards) static_cast<void>(set_names_aside());  // if the journal cannot be written: retried
}

void Agent::run_reaper(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    reap();
    if (world_.cgroups != nullptr) {
      world_.cgroups->wait_change(kReapEvery);
    } else {
      std::unique_lock lock(state_);
      freed_.wait_for(lock, kReapEvery);
    }
  }
}

void Agent::run_watch(Clock& clock, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    watch();
    // In the idle state it checks rarely, but it checks a new slice within one short round.
    for (int i = 0; i < kIdleRounds && !stop.stop_requested(); ++i) {
      clock.sleep_for(watchdog_.wary(clock.now()) ? kWatchClosely : kWatchEvery, stop);
      const std::lock_guard lock(state_);
      if (!slices_.empty()) break;
    }
  }
}

}  // namespace carve
