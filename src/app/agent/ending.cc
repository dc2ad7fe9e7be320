#include "app/agent/prepared_slices.h"

#include <fmt/core.h>

#include <algorithm>

// The end of slices of the kubelet plugins: a slice ends when its owner has ended and the last process that holds the
// slice has ended.
namespace carve::agent {
namespace {

constexpr std::chrono::milliseconds kLookAgain{25};
constexpr std::chrono::seconds kEndAgain{1};
// How long a claim that the kubelet has released may keep processes before they are killed.
constexpr std::chrono::seconds kLeftBehind{10};

}  // namespace

/// Writes the end to the journal, so that nothing is granted to this owner again after a restart.
Result<void> PreparedSlices::note_ending(const OwnerTurns::Turn& turn, std::set<std::string>* ids) {
  std::vector<LiveSlice> unwritten;
  for (const auto& id : store_.ids_of([&](const LiveSlice& slice) { return slice.holder == turn.owner(); })) {
    ids->insert(id);
    store_.change(id, [&](LiveSlice& slice) {
      slice.ending = true;
      if (!slice.ending_noted) unwritten.push_back(slice);
    });
  }
  CARVE_TRY_VOID(store_.note(turn, unwritten));
  for (const auto& one : unwritten) store_.change(one.id, [](LiveSlice& slice) { slice.ending_noted = true; });
  return {};
}

Result<void> PreparedSlices::end_owner(const OwnerTurns::Turn& turn, const Result<std::vector<PodProcess>>& pods) {
  std::set<std::string> ids;
  const auto noted = note_ending(turn, &ids);
  if (ids.empty()) return {};
  for (const auto& id : ids) CARVE_TRY_VOID(world_.devices.withdraw(id));
  CARVE_TRY_VOID(noted);
  CARVE_TRY(const auto alive, processes_.holders_of(ids, pods, false));
  if (!alive.empty()) {
    return fail(Code::kFailedPrecondition,
                fmt::format("{} process{} of the container still run{} (first: {}); the slice is freed when the "
                            "last one ends",
                            alive.size(), alive.size() == 1 ? "" : "es", alive.size() == 1 ? "s" : "", *alive.begin()));
  }
  Result<void> all;
  for (const auto& id : ids) {
    const auto ended = lifecycle_.finish(turn, id, "unprepared");
    if (!ended) all = fail(Code::kUnavailable, "journal: " + ended.error().what);
  }
  return all;
}

/// The kubelet has released this claim, so all its pods have ended. A process that is still in their cgroups is left
/// behind: the runtime was seen to forget a `runc init` there when a start was cancelled. The kubelet would kill it,
/// but only after unprepare has succeeded, and unprepare waits for the process.
void PreparedSlices::kill_left_behind(const Owner& owner, const std::vector<PodProcess>& pods) {
  std::set<std::string> own, ids;  // UIDs; slices
  store_.read([&](const SliceStore::State& state) {
    for (const auto& [id, slice] : state.slices) {
      if (slice.holder != owner) continue;
      own.insert(slice.pods.begin(), slice.pods.end());
      ids.insert(id);
    }
  });
  for (const auto& process : pods) {
    const auto sees = [&] { return processes_.sees_any(process.pid, ids); };
    // A process with an unreadable cgroup is assigned by its mounts, as in holders_of().
    if (own.count(process.pod) == 0 && !(process.pod.empty() && sees())) continue;
    const auto still = [&] {
      if (process.pod.empty()) return sees();
      const auto now = world_.containers->process(process.pid);
      return now && now->pod == process.pod;
    };
    const auto killed = world_.processes.kill(process.pid, still);
    if (!killed) {
      world_.log.warn("a process that was left behind in a pod's cgroup could not be killed",
                      {{"claim", owner.uid}, {"pod", process.pod}, {"error", killed.error().what}});
    }
    if (!killed.value_or(false)) continue;
    world_.log.warn("a process that was left behind in a pod's cgroup was killed",
                    {{"claim", owner.uid}, {"pod", process.pod}, {"pid", process.pid}});
  }
}

/// True every kLeftBehind while the claim keeps processes.
bool PreparedSlices::is_left_behind(const Owner& owner, Clock::Time now) {
  const MutexLock lock(mutex_);
  auto& since = ending_since_.try_emplace(owner, now).first->second;
  if (now - since < kLeftBehind) return false;
  since = now;
  return true;
}

void PreparedSlices::end_ended() {
  const auto next = world_.clock.now() + kEndAgain;
  std::set<Owner> owners;
  {
    const MutexLock lock(mutex_);
    if (world_.clock.now() < end_again_) return;
    end_again_ = next;
  }
  store_.read([&](const SliceStore::State& state) {
    for (const auto& [id, slice] : state.slices) {
      if (slice.ending) owners.insert(slice.holder);
    }
  });
  {
    const MutexLock lock(mutex_);
    std::erase_if(ending_since_, [&](const auto& one) { return owners.count(one.first) == 0; });
  }
  if (owners.empty()) return;
  const auto pods = processes_.pod_processes();
  for (const auto& owner : owners) {
    const auto turn = turns_.try_take(owner);
    if (!turn) continue;
    const auto ended = end_owner(*turn, pods);
    if (!ended && ended.error().code == Code::kFailedPrecondition && owner.kind == OwnerKind::kClaim && pods &&
        is_left_behind(owner, next)) {
      kill_left_behind(owner, *pods);
    }
    if (!ended && ended.error().code != Code::kFailedPrecondition)
      world_.log.warn("slices are not freed yet", {{"owner", owner.uid}, {"error", ended.error().what}});
  }
}

Result<void> PreparedSlices::unprepare(const Owner& owner) {
  const auto start = world_.clock.now();
  for (;;) {
    Result<void> ended;
    {
      const auto turn = turns_.take(owner);
      ended = end_owner(turn, processes_.pod_processes());
    }
    // The last process may be about to end, and the kubelet would retry only seconds later. The plugin for slots
    // retries by itself and must not be blocked meanwhile.
    if (ended || ended.error().code != Code::kFailedPrecondition || owner.kind == OwnerKind::kPod) return ended;
    if (world_.clock.now() - start >= config_.last_process) return ended;
    store_.wait_freed(kLookAgain);
  }
}

}  // namespace carve::agent
