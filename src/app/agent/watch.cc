#include <algorithm>

#include "app/agent/agent.h"

// The watchdog's round: look, judge (watchdog.h), act, heal.
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

/// Of the slices of one process the one that holds this card, else the first: a card that none of them holds is
/// foreign to it. Empty: it has none.
std::string Agent::slice_on(const std::vector<std::string>& ids, const CardId& card) const {
  const std::lock_guard lock(state_);
  for (const auto& id : ids) {
    const auto found = slices_.find(id);
    if (found != slices_.end() && found->second.card_index(card)) return id;
  }
  return ids.empty() ? std::string() : ids.front();
}

std::vector<Sighting> Agent::sightings_of(const std::vector<GpuUsage>& usage) {
  std::vector<Sighting> sightings;
  std::map<std::int32_t, std::vector<std::string>> known;
  for (const auto& card : usage) {
    for (const auto& process : card.processes) {
      auto [it, fresh] = known.try_emplace(process.pid);
      if (fresh) {
        const std::string own = world_.cgroups != nullptr ? world_.cgroups->slice_of(process.pid) : std::string();
        it->second = own.empty() ? world_.processes.slices_seen_by(process.pid) : std::vector<std::string>{own};
      }
      sightings.push_back({slice_on(it->second, card.card), card.card, process});
    }
  }
  return sightings;
}

void Agent::look_at_pages() {
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
      if (found != slices_.end()) found->second.take(slice, now);
    }
  }
  if (changed)
    note_event(ok ? "arbiter-back" : "arbiter-away", "", ok ? "the arbiter answers" : pages.error().what);
  if (pages) reconcile_pages(*pages);
}

void Agent::watch() {
  // After a driver that was away (or replaced) the cards may be others.
  if (inventory_stale_ || world_.gpu.state() != GpuState::kOk) {
    inventory_stale_ = !adopt_inventory().has_value();
    if (!inventory_stale_) publish_devices();
  }
  auto usage = world_.gpu.usage();
  note_gpu_state();
  // After the driver's list: whoever is on a card said hello before, so he is in the pages' list.
  look_at_pages();
  std::map<std::string, std::vector<std::int32_t>> members;
  {
    std::vector<std::string> ids;
    {
      const std::lock_guard lock(state_);
      for (const auto& [id, slice] : slices_) {
        if (!slice.keep) ids.push_back(id);
      }
    }
    for (const auto& id : ids) {
      if (world_.cgroups == nullptr) break;
      if (auto pids = world_.cgroups->pids(id)) members[id] = std::move(*pids);
    }
  }
  const auto sightings = usage ? sightings_of(*usage) : std::vector<Sighting>();
  std::vector<WatchedSlice> watched;
  std::vector<Breach> breaches;
  bool pages_known = false;
  {
    const std::lock_guard lock(state_);
    // One that was just started anew may not know all its processes yet.
    pages_known = arbiter_ok_ && world_.clock.now() - arbiter_since_ >= config_.arbiter_settles;
    for (auto& [id, slice] : slices_) {
      if (const auto found = members.find(id); found != members.end()) slice.members = found->second;
      WatchedSlice one{id,
                       slice.whole(),
                       slice.slices,
                       {slice.registered.begin(), slice.registered.end()},
                       slice.announced,
                       {}};
      for (std::size_t i = 0; i < slice.slices.size(); ++i) {
        one.delivered_percent.push_back(slice.accounted_percent(i));
      }
      watched.push_back(std::move(one));
    }
    if (usage) {
      usage_ = std::move(*usage);
      sightings_ = sightings;
      for (const auto& card : usage_) static_cast<void>(ledger_.set_health(card.card, card.health));
    }
    // Without the arbiter nobody can be told from a process that never said hello.
    if (usage && pages_known) breaches = watchdog_.judge(watched, sightings, world_.clock.now());
  }
  for (const auto& breach : breaches) act(breach);
  if (!usage || !pages_known) return;
  auto overheads = Watchdog::overheads(watched, sightings);
  for (const auto& [where, bytes] : overheads) {
    // The smaller of two rounds: the driver's list and the pages are read one after the other, and what is
    // freed in between looks like overhead once. What the driver really keeps is there in both.
    const auto before = overheads_.find(where);
    const Bytes lasting = before == overheads_.end() ? Bytes() : std::min(before->second, bytes);
    static_cast<void>(
        world_.pages.set_overhead(where.first, static_cast<std::uint32_t>(where.second), lasting));
  }
  overheads_ = std::move(overheads);
}

void Agent::act(const Breach& breach) {
  const bool compute = breach.kind == BreachKind::kCompute;
  const BreachAction action = compute ? config_.on_compute : config_.on_memory;
  std::string done = "reported only";
  if (action == BreachAction::kThrottle && compute && world_.cgroups != nullptr) {
    throttle(breach);
    done = "throttled";
  } else if (action != BreachAction::kReport) {
    for (const auto pid : breach.pids) world_.processes.kill(pid);
    done = "killed";
  }
  {
    const std::lock_guard lock(state_);
    const auto found = slices_.find(breach.slice);
    if (found != slices_.end()) found->second.remark = std::string(to_string(breach.kind)) + ": " + done;
  }
  note_event(to_string(breach.kind), breach.slice, breach.text + ": " + done);
}

/// One freeze per report (once a second): long enough that over the second the mean comes to what is allowed.
void Agent::throttle(const Breach& breach) {
  const double rest = std::clamp(1.0 - breach.allowed / std::max(breach.seen, 1.0), 0.0, 0.9);
  if (!world_.cgroups->freeze(breach.slice, true)) return;
  watchdog_.frozen(breach, rest);
  const std::lock_guard lock(state_);
  throttled_until_[breach.slice] =
      world_.clock.now() + std::chrono::milliseconds(static_cast<std::int64_t>(rest * 1000));
}

}  // namespace carve
