#include <fmt/core.h>

#include <algorithm>

#include "app/agent/agent.h"

// The end of slices from the kubelet interfaces: a slice ends when its owner is gone and the last process that has it
// is gone. Everything here except unprepare() runs under commit_.
namespace carve {
namespace {

constexpr std::chrono::milliseconds kLookAgain{25};
constexpr std::chrono::seconds kEndAgain{1};
// How long a claim that the kubelet has released may still have processes before they are killed.
constexpr std::chrono::seconds kLeftBehind{10};

/// True if the mounts of the process show that it is in a container with one of these slices.
bool sees_any(const Processes& processes, std::int32_t pid, const std::set<std::string>& ids) {
  const auto seen = processes.slices_seen_by(pid);
  return std::any_of(seen.begin(), seen.end(), [&](const auto& id) { return ids.count(id) != 0; });
}

}  // namespace

Result<std::vector<PodProcess>> Agent::pod_processes() const {
  if (world_.containers == nullptr)
    return fail(Code::kUnavailable, "containers cannot be seen here");
  return world_.containers->processes();
}

/// The processes that still hold these slices. The sources are:
///   - the kubelet's cgroups, which no tenant can leave;
///   - the mounts of containers, if the pod is not known to hold the slices (a claim that pods share) or if the cgroup
///     cannot be read;
///   - the pages, because the kernel identified each process that sent a hello;
///   - the driver.
/// `part_only`: other containers of the same pods do not count.
///   errors  kUnavailable: no source can answer
Result<std::set<std::int32_t>> Agent::holders_of(const std::set<std::string>& ids,
                                                 const Result<std::vector<PodProcess>>& pods,
                                                 bool part_only) {
  std::set<std::int32_t> alive;
  std::set<std::string> own;  // UIDs
  bool claims = part_only;
  {
    const std::lock_guard lock(state_);
    for (const auto& id : ids) {
      const auto found = slices_.find(id);
      if (found == slices_.end()) continue;
      claims =
          claims || found->second.holder.kind == OwnerKind::kClaim || found->second.pods.empty();
      if (!part_only) own.insert(found->second.pods.begin(), found->second.pods.end());
    }
  }
  for (const auto& process : pods ? *pods : std::vector<PodProcess>()) {
    const bool by_mounts = claims || process.pod.empty();
    if (own.count(process.pod) != 0 || (by_mounts && sees_any(world_.processes, process.pid, ids)))
      alive.insert(process.pid);
  }
  const auto pages = world_.pages.list();
  for (const auto& slice : pages ? *pages : std::vector<PageSlice>()) {
    if (ids.count(slice.id) == 0) continue;
    for (const auto& process : slice.processes) alive.insert(process.pid);
  }
  const auto usage =
      world_.gpu.state() == GpuState::kOk
          ? world_.gpu.usage()
          : Result<std::vector<GpuUsage>>(fail(Code::kUnavailable, world_.gpu.reason()));
  for (const auto& seen : usage ? sightings_of(*usage) : std::vector<Sighting>()) {
    if (ids.count(seen.slice) != 0) alive.insert(seen.process.pid);
  }
  // If pods can be seen at all, the pages do not replace them: a whole card has no pages.
  if (!pods && (world_.containers != nullptr || !pages)) {
    return fail(Code::kUnavailable,
                fmt::format("whether its processes are gone cannot be told: {}{}", pods.error().what,
                            pages ? "" : "; arbiter: " + pages.error().what));
  }
  return alive;
}

/// Writes the end to the journal, so that nothing of this owner is granted again after a restart.
Result<void> Agent::note_ending(const Owner& owner, std::set<std::string>* ids) {
  std::vector<JournalEvent> events;
  {
    const std::lock_guard lock(state_);
    const auto& notes = world_.journal.state().notes;
    for (auto& [id, slice] : slices_) {
      if (slice.holder != owner) continue;
      slice.ending = true;
      ids->insert(id);
      const auto text = note_of(slice);
      if (const auto found = notes.find(id); found == notes.end() || found->second != text)
        events.emplace_back(PutNote{id, text});
    }
  }
  if (events.empty()) return {};
  return world_.journal.append(events);
}

Result<void> Agent::end_owner(const Owner& owner, const Result<std::vector<PodProcess>>& pods) {
  std::set<std::string> ids;
  const auto noted = note_ending(owner, &ids);
  if (ids.empty()) return {};
  for (const auto& id : ids) CARVE_TRY_VOID(world_.devices.withdraw(id));
  CARVE_TRY_VOID(noted);
  CARVE_TRY(const auto alive, holders_of(ids, pods, false));
  if (!alive.empty()) {
    return fail(
        Code::kFailedPrecondition,
        fmt::format(
            "{} process{} of the container still run{}, the first is {}; the slice is freed when "
            "they are gone",
            alive.size(), alive.size() == 1 ? "" : "es", alive.size() == 1 ? "s" : "",
            *alive.begin()));
  }
  for (const auto& id : ids) finish(id, "unprepared");
  const std::lock_guard lock(state_);
  for (const auto& id : ids) {
    if (slices_.count(id) != 0) return fail(Code::kUnavailable, "journal: " + journal_error_);
  }
  return {};
}

/// The kubelet says that all pods of this claim have ended. A process that is still in their cgroups is left behind: a
/// `runc init` that the runtime forgot when a start was cancelled was seen there. The kubelet would kill it, but only
/// after unprepare has succeeded, and unprepare waits for the process.
void Agent::kill_left_behind(const Owner& owner, const std::vector<PodProcess>& pods) {
  std::set<std::string> own, ids;  // UIDs; slices
  {
    const std::lock_guard lock(state_);
    for (const auto& [id, slice] : slices_) {
      if (slice.holder != owner) continue;
      own.insert(slice.pods.begin(), slice.pods.end());
      ids.insert(id);
    }
  }
  for (const auto& process : pods) {
    const auto sees = [&] { return sees_any(world_.processes, process.pid, ids); };
    // If its cgroup cannot be read, its mounts show its slice, as in holders_of().
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

/// Ends the slices that were unprepared while a process still ran, by this agent or an earlier one.
void Agent::end_ended() {
  std::set<Owner> owners;
  {
    const std::lock_guard lock(state_);
    if (world_.clock.now() < end_again_) return;
    end_again_ = world_.clock.now() + kEndAgain;
    for (const auto& [id, slice] : slices_) {
      if (slice.ending) owners.insert(slice.holder);
    }
  }
  std::erase_if(ending_since_, [&](const auto& one) { return owners.count(one.first) == 0; });
  if (owners.empty()) return;
  const auto pods = pod_processes();
  for (const auto& owner : owners) {
    const auto ended = end_owner(owner, pods);
    if (!ended && ended.error().code == Code::kFailedPrecondition && owner.kind == OwnerKind::kClaim && pods) {
      auto& since = ending_since_.try_emplace(owner, end_again_).first->second;
      if (end_again_ - since >= kLeftBehind) {
        kill_left_behind(owner, *pods);
        since = end_again_;
      }
    }
    if (!ended && ended.error().code != Code::kFailedPrecondition)
      world_.log.warn("slices are not freed yet",
                      {{"owner", owner.uid}, {"error", ended.error().what}});
  }
}

Result<void> Agent::unprepare(const Owner& owner) {
  const auto start = world_.clock.now();
  for (;;) {
    Result<void> ended;
    {
      const std::lock_guard commit(commit_);
      ended = end_owner(owner, pod_processes());
    }
    // The last process may be about to end, and the kubelet would retry only seconds later. The interface for pods
    // retries by itself and must not be blocked meanwhile.
    if (ended || ended.error().code != Code::kFailedPrecondition || owner.kind == OwnerKind::kPod)
      return ended;
    if (world_.clock.now() - start >= config_.last_process) return ended;
    std::unique_lock lock(state_);
    freed_.wait_for(lock, kLookAgain);
  }
}

}  // namespace carve
