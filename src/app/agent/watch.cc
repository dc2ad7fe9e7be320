#include <fmt/core.h>

#include <algorithm>

#include "app/agent/agent.h"

// The watchdog's round: observe, judge (watchdog.h), act, fix.
namespace carve {
namespace {
constexpr std::size_t kMaxEvents = 64;
}  // namespace

void Agent::note_event(const std::string& kind, const std::string& slice, const std::string& text) {
  const auto wall =
      std::chrono::duration_cast<std::chrono::milliseconds>(world_.clock.wall_now().time_since_epoch());
  {
    const std::lock_guard lock(state_);
    events_.push_back({wall.count(), kind, slice, text});
    while (events_.size() > kMaxEvents) events_.pop_front();
  }
  world_.log.warn("event", {{"kind", kind}, {"slice", slice}, {"text", text}});
}

void Agent::note_gpu_state() {
  const GpuState state = world_.gpu.state();
  {
    const std::lock_guard lock(state_);
    const GpuState before = gpu_state_seen_;
    if (state == before) return;
    gpu_state_seen_ = state;
    if (state == GpuState::kStarting || (before == GpuState::kStarting && state == GpuState::kOk)) return;
  }
  note_event(std::string("driver-") + to_string(state), "",
             state == GpuState::kOk ? "the driver's library answers" : world_.gpu.reason());
}

/// The slices of a process, the surest source first: its cgroup (`carve run`), its hello, what is mounted for it, its
/// pod. The pod comes from the kernel too, and is the only source for a process that hides its mounts (chroot). Mounts
/// that the process makes itself cannot move it to another pod.
std::vector<std::string> Agent::slices_of_process(std::int32_t pid, bool by_hellos) const {
  const std::string own = world_.cgroups != nullptr ? world_.cgroups->slice_of(pid) : std::string();
  if (!own.empty()) return {own};
  const auto seen = world_.processes.slices_seen_by(pid);
  const auto member = world_.containers != nullptr ? world_.containers->process(pid) : std::nullopt;
  std::vector<std::string> ids;
  std::vector<std::string> mounted;
  std::vector<std::string> pods;
  const std::lock_guard lock(state_);
  for (const auto& [id, slice] : slices_) {
    const auto& said = slice.registered;
    if (by_hellos && std::find(said.begin(), said.end(), pid) != said.end()) ids.push_back(id);
    if (member && std::find(slice.pods.begin(), slice.pods.end(), member->pod) != slice.pods.end()) pods.push_back(id);
  }
  for (const auto& id : seen) {
    const auto found = slices_.find(id);
    const bool others = member && found != slices_.end() && found->second.holder.kind == OwnerKind::kPod &&
                        !found->second.pods.empty() && std::find(pods.begin(), pods.end(), id) == pods.end();
    if (!others) mounted.push_back(id);
  }
  std::stable_partition(mounted.begin(), mounted.end(),
                        [&](const auto& id) { return std::find(pods.begin(), pods.end(), id) != pods.end(); });
  ids.insert(ids.end(), mounted.begin(), mounted.end());
  return ids.empty() ? pods : ids;
}

/// From the slices of one process, the slice that holds this card, else the first: a card that none of them holds is
/// foreign to the process. Empty: the process has no slice.
std::string Agent::slice_on(const std::vector<std::string>& ids, const CardId& card) const {
  const std::lock_guard lock(state_);
  for (const auto& id : ids) {
    const auto found = slices_.find(id);
    if (found != slices_.end() && found->second.card_index(card)) return id;
  }
  return ids.empty() ? std::string() : ids.front();
}

std::vector<Sighting> Agent::sightings_of(const std::vector<GpuUsage>& usage, bool by_hellos) {
  std::vector<Sighting> sightings;
  std::map<std::int32_t, std::vector<std::string>> known;
  for (const auto& card : usage) {
    for (const auto& process : card.processes) {
      auto [it, fresh] = known.try_emplace(process.pid);
      if (fresh) it->second = slices_of_process(process.pid, by_hellos);
      sightings.push_back({slice_on(it->second, card.card), card.card, process});
    }
  }
  return sightings;
}

bool Agent::look_at_pages() {
  const auto pages = world_.pages.list();
  const auto now = world_.clock.now();
  bool changed = false;
  bool ok = false;
  {
    const std::lock_guard lock(state_);
    changed = arbiter_asked_ ? arbiter_ok_ != pages.has_value() : !pages.has_value();
    arbiter_asked_ = true;
    if (pages && (changed || arbiter_since_ == Clock::Time{})) arbiter_since_ = now;
    ok = arbiter_ok_ = pages.has_value();
    arbiter_error_ = pages ? std::string() : pages.error().what;
    arbiter_code_ = pages ? Code::kUnknown : pages.error().code;
    for (const auto& slice : pages ? *pages : std::vector<PageSlice>()) {
      const auto found = slices_.find(slice.id);
      if (found != slices_.end() && !slice.remains) found->second.take(slice, now);
    }
  }
  if (changed)
    note_event(ok ? "arbiter-back" : "arbiter-away", "", ok ? "the arbiter answers" : pages.error().what);
  if (pages) reconcile_pages(*pages);
  return ok;
}

/// A card that is not listed may be listed next time. A lost card is seen again only by a reopened library.
void Agent::look_for_lost() {
  constexpr Clock::Duration kListAgain = std::chrono::seconds(2);
  constexpr Clock::Duration kRenewAgain = std::chrono::seconds(30);
  const auto now = world_.clock.now();
  bool lost = false;
  {
    const std::lock_guard lock(state_);
    lost = books_.watch.any_lost(now);
    if (books_.watch.any_unlisted() && now - books_.listed_at >= kListAgain) inventory_stale_ = true;
  }
  if (!lost) books_.renewed_at = now;
  if (!lost || now - books_.renewed_at < kRenewAgain) return;
  books_.renewed_at = now;
  world_.gpu.renew();
  inventory_stale_ = true;
}

/// If the disk was full when a driver was first seen, fractions must become available again without a restart of the
/// agent.
void Agent::retry_links() {
  std::string version;
  {
    const std::lock_guard lock(state_);
    if (links_error_.empty()) return;
    version = inventory_.driver_version;
  }
  make_links(version);
}

/// Per card, the memory that the ledger has promised to no slice.
std::vector<Bytes> Agent::spare_of(const LiveSlice& slice) const {
  std::vector<Bytes> spare;
  for (const auto& held : slice.slices) {
    const CardState* state = ledger_.find(held.card);
    spare.push_back(state != nullptr ? state->card.memory - state->use.memory : Bytes());
  }
  return spare;
}

void Agent::watch() {
  look_for_lost();
  // When a driver returns (or is replaced), the cards may be different.
  if (inventory_stale_ || world_.gpu.state() != GpuState::kOk) {
    inventory_stale_ = !adopt_inventory().has_value();
    if (!inventory_stale_) publish_devices();
  } else {
    retry_links();
  }
  auto usage = world_.gpu.usage();
  note_gpu_state();
  // After the driver's list: a process on a card sent its hello before, so it is in the pages' list.
  const bool arbiter_answers = look_at_pages();
  std::map<std::string, std::vector<std::int32_t>> members;
  for (const auto& id : ids_in_cgroups()) {
    if (world_.cgroups == nullptr) break;
    if (auto pids = world_.cgroups->pids(id)) members[id] = std::move(*pids);
  }
  // Hellos to an arbiter that is away may be from processes that have ended, and other processes may have their PIDs
  // now.
  const auto sightings = usage ? sightings_of(*usage, arbiter_answers) : std::vector<Sighting>();
  std::vector<WatchedSlice> watched;
  std::vector<Breach> breaches;
  bool pages_known = false;
  {
    const std::lock_guard lock(state_);
    // An arbiter that has just restarted may not know all its processes yet.
    pages_known = arbiter_ok_ && world_.clock.now() - arbiter_since_ >= config_.arbiter_settles;
    for (auto& [id, slice] : slices_) {
      if (const auto found = members.find(id); found != members.end()) slice.members = found->second;
      WatchedSlice one{id,
                       slice.whole(),
                       slice.slices,
                       {slice.registered.begin(), slice.registered.end()},
                       slice.announced,
                       {},
                       pages_known,
                       spare_of(slice),
                       {},
                       {},
                       offender_of(slice),
                       world_.clock.now() < slice.revoked_until};
      for (std::size_t i = 0; i < slice.slices.size(); ++i) {
        one.charged_percent.push_back(slice.charged_percent(i));
        one.granted_percent.push_back(slice.granted_percent(i));
        one.drained_percent.push_back(slice.drained_percent(i));
      }
      watched.push_back(std::move(one));
    }
    if (usage) {
      usage_ = std::move(*usage);
      sightings_ = sightings;
      books_.watch.used(usage_, world_.clock.now());
      static_cast<void>(apply_verdicts());
    }
    // Without the arbiter a registered process cannot be told from one that never sent a hello, but memory and cards
    // can still be judged.
    if (usage) {
      breaches = watchdog_.judge(watched, sightings, world_.clock.now());
      for (const auto& card : usage_) ledger_.set_beyond(card.card, watchdog_.beyond_limits(card.card));
    }
  }
  for (const auto& breach : breaches) act(breach);
  if (usage) look_for_unexplained(usage_, watched, sightings);
  if (!usage || !pages_known) return;
  auto overheads = Watchdog::overheads(watched, sightings);
  for (const auto& [where, bytes] : overheads) {
    // The smaller figure of two rounds. The driver's list and the pages are read one after the other, so memory that is
    // freed in between looks like overhead once. What the driver really keeps is in both rounds.
    const auto before = overheads_.find(where);
    const Bytes lasting = before == overheads_.end() ? Bytes() : std::min(before->second, bytes);
    static_cast<void>(world_.pages.set_overhead(where.first, static_cast<std::uint32_t>(where.second),
                                                std::max(lasting, watchdog_.kept_back(where.first, where.second))));
  }
  overheads_ = std::move(overheads);
}

}  // namespace carve
