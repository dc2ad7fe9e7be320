#include "app/agent/local_slices.h"

#include <fmt/core.h>

#include <algorithm>

namespace carve::agent {
namespace {
constexpr std::chrono::milliseconds kWaitStep{200};
}  // namespace

Result<Grant> LocalSlices::allocate(const Caller& caller, const AllocateRequest& request,
                                    const std::function<bool()>& gone) {
  CARVE_TRY_VOID(joined(validate(request.request)));
  const auto start = world_.clock.now();
  bool counted = false;
  bool looked_again = false;
  Result<Grant> result;
  for (;;) {
    result = try_allocate(caller, request);
    const bool no_room =
        !result && (result.error().code == Code::kResourceExhausted || result.error().code == Code::kPermissionDenied);
    if (no_room && !looked_again) {
      // A slice that blocks this request may have just ended: an ended slice must not cause a refusal.
      looked_again = true;
      reap();
      continue;
    }
    const bool full = !result && result.error().code == Code::kResourceExhausted;
    if (!full || !request.wait) break;
    const auto waited = world_.clock.now() - start;
    if (waited >= *request.wait) {
      const std::string seconds = std::to_string(request.wait->count() / 1000);
      result = fail(Code::kDeadlineExceeded, "still does not fit after " + seconds + " s: " + result.error().what);
      break;
    }
    if (gone && gone()) {
      result = fail(Code::kCancelled, "the caller has ended");
      break;
    }
    if (!counted) {
      const MutexLock lock(mutex_);
      ++waiting_;
    }
    counted = true;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*request.wait - waited);
    store_.wait_freed(std::min<std::chrono::milliseconds>(kWaitStep, left + std::chrono::milliseconds(1)));
  }
  if (counted) {
    const MutexLock lock(mutex_);
    --waiting_;
  }
  return result;
}

std::uint32_t LocalSlices::waiting() const {
  const MutexLock lock(mutex_);
  return waiting_;
}

/// Under the store's lock.
Result<std::vector<Slice>> LocalSlices::choose(const SliceStore::State& state, const Caller& caller,
                                               const AllocateRequest& request, const PolicyRow& policy,
                                               const GpuInventory& inventory, const LiveSlice& slice) const {
  const auto living =
      static_cast<std::uint32_t>(std::count_if(state.slices.begin(), state.slices.end(),
                                               [&](const auto& s) { return s.second.uid == caller.uid; }) +
                                 std::count_if(state.starting.begin(), state.starting.end(),
                                               [&](const auto& s) { return s.second == caller.uid; }));
  CARVE_TRY_VOID(check_access(config_.access, caller, request.request, living));
  if (state.ledger.cards().empty()) {
    return fail(Code::kUnavailable, std::string("no card on this machine: NVML is ") + to_string(world_.gpu.state()) +
                                        " (" + world_.gpu.reason() + ")");
  }
  const std::uint32_t kept_back = caller.uid == 0 ? 0 : config_.slices_for_root;
  CARVE_TRY(const auto placed, place(state.ledger, inventory.links, request.request, policy, kept_back));
  return slices_for(slice.owner(), slice.part, request.request, placed);
}

Result<Grant> LocalSlices::try_allocate(const Caller& caller, const AllocateRequest& request) {
  if (!config_.gives_cards) {
    return fail(Code::kFailedPrecondition,
                "Kubernetes grants this node's cards: request them with a Pod, or run `carve up` elsewhere");
  }
  CARVE_TRY(const PolicyRow* policy, policy_named(request.policy));
  if (!request.keep && world_.cgroups == nullptr) return fail(Code::kUnavailable, world_.cgroup_error);
  if (const auto error = links_.error(); !request.request.whole && !error.empty()) {
    return fail(Code::kFailedPrecondition, "no fractions can be granted: " + error);
  }
  LiveSlice slice;
  slice.id = names_.next_local(request.keep);
  slice.holder = local_owner(slice.id);
  slice.keep = request.keep;
  // `carve run` mounts its slice's folder as its caller, by path, and the slice's cgroup decides which processes may
  // join. An engine's container has no cgroup of Carve: every process that reaches its socket belongs to it, so only
  // the engine's mount may lead to the socket. On a Kubernetes node only root can pass the folder of all slices, so no
  // outer folder is needed.
  slice.in_private_folder = config_.gives_cards && request.keep && !request.request.whole;
  slice.uid = caller.uid;
  if (!request.keep) slice.asker_gone = caller.gone;
  slice.name = plain_name(request.name);
  const auto turn = turns_.take(slice.holder);
  const GpuInventory inventory = cards_.inventory();
  CARVE_TRY(slice.slices, store_.reserve(turn, slice, [&](const SliceStore::State& state) {
    return choose(state, caller, request, *policy, inventory, slice);
  }));
  slice.made = world_.clock.now();
  const Grant grant = lifecycle_.grant_of(slice);
  CARVE_TRY_VOID(lifecycle_.start(turn, std::move(slice)));
  return grant;
}

Result<void> LocalSlices::join(const Caller& caller, const std::string& slice) {
  const auto turn = turns_.take(local_owner(slice));
  const auto found = store_.find(slice);
  if (!found) return fail(Code::kNotFound, "no slice " + slice + " (it may have ended)");
  CARVE_TRY_VOID(check_owner(caller, found->uid, slice));
  if (found->keep) {
    return fail(Code::kFailedPrecondition, "slice " + slice + " is a device for containers; no process can join it");
  }
  if (caller.pid <= 0) {
    return fail(Code::kFailedPrecondition, "the caller is in another PID namespace: run it on the host");
  }
  if (world_.cgroups == nullptr) return fail(Code::kUnavailable, world_.cgroup_error);
  // The caller's children have its connection too. After the caller's end its PID may belong to another process, even
  // to one of root.
  const auto gone = [&caller] { return caller.gone && caller.gone(); };
  const auto refused = [&] {
    return fail(Code::kNotFound, fmt::format("join {}: the caller, process {}, has ended", slice, caller.pid));
  };
  if (gone()) return refused();
  if (auto moved = world_.cgroups->join(slice, caller.pid); !moved) return fail_in("join " + slice, moved.error());
  if (gone()) {  // it ended before or after the move: the new process with its PID must not stay in the cgroup
    if (auto expelled = world_.cgroups->expel(slice, caller.pid); !expelled) {
      world_.log.error("a process that did not join may be in a slice's cgroup",
                       {{"slice", slice}, {"pid", caller.pid}, {"error", expelled.error().what}});
    }
    return refused();
  }
  store_.change(slice, [](LiveSlice& joined) {
    joined.joined = true;
    joined.asker_gone = {};  // from now on the cgroup shows whether the slice is in use
  });
  return {};
}

Result<void> LocalSlices::release(const Caller& caller, const std::string& slice, bool kill) {
  const auto turn = turns_.take(local_owner(slice));
  const auto found = store_.find(slice);
  if (!found) return fail(Code::kNotFound, "no slice " + slice);
  CARVE_TRY_VOID(check_owner(caller, found->uid, slice));
  if (!found->local()) {
    return fail(Code::kFailedPrecondition,
                "slice " + slice + " belongs to " + found->name + ": it ends when Kubernetes ends its pod");
  }
  if (found->keep && !kill && !found->registered.empty()) {
    return fail(Code::kFailedPrecondition, "slice " + slice + " is in use by process " +
                                               std::to_string(found->registered.front()) +
                                               " (--force deletes it anyway)");
  }
  if (!found->keep && world_.cgroups != nullptr) {
    const auto populated = world_.cgroups->populated(slice);
    if (!populated && populated.error().code != Code::kNotFound)
      return fail_in("check slice " + slice + " for processes", populated.error());
    if (populated && *populated) {
      if (!kill) return fail(Code::kFailedPrecondition, "slice " + slice + " still has processes (--force kills them)");
      CARVE_TRY_VOID(world_.cgroups->kill(slice));
      world_.cgroups->wake();
      return {};  // the reaper ends the slice when the last process has ended
    }
  }
  if (auto ended = lifecycle_.finish(turn, slice, "released"); !ended)
    return fail(Code::kUnavailable, "journal: " + ended.error().what);
  return {};
}

std::vector<std::string> LocalSlices::ids_in_cgroups() const {
  return store_.ids_of([](const LiveSlice& slice) { return !slice.keep; });
}

void LocalSlices::reap() {
  if (world_.cgroups == nullptr) return;
  for (const auto& id : ids_in_cgroups()) {
    const auto populated = world_.cgroups->populated(id);
    if (!populated || !*populated) reap_one(id);
  }
}

void LocalSlices::reap_one(const std::string& id) {
  const auto turn = turns_.take(local_owner(id));
  // Checked again in the slice's turn, because a process may have joined in between.
  const auto again = world_.cgroups->populated(id);
  if (again && *again) return;
  if (!again && again.error().code != Code::kNotFound) return;  // unknown does not mean empty; checked again soon
  const auto slice = store_.find(id);
  if (!slice) return;
  const auto allowed = slice->restored ? config_.rejoin_time : config_.start_time;
  const bool late = world_.clock.now() - slice->made > allowed;
  const bool ended = slice->joined || late || !again;
  // A caller that ended before it joined has left no process that could join.
  if (!ended && slice->asker_gone && slice->asker_gone()) {
    static_cast<void>(lifecycle_.finish(turn, id, "its caller has ended"));
  } else if (ended) {
    static_cast<void>(lifecycle_.finish(turn, id, "its cgroup is empty"));
  }
}

}  // namespace carve::agent
