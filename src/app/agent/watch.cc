#include <algorithm>

#include "app/agent/second_line.h"

// The watchdog's round: observe, judge (watchdog.h), act, correct.
namespace carve::agent {

void SecondLine::note_gpu_state() {
  const GpuState state = world_.gpu.state();
  const GpuState before = std::exchange(gpu_state_seen_, state);
  if (state == before || state == GpuState::kStarting) return;
  if (before == GpuState::kStarting && state == GpuState::kOk) return;
  events_.note(std::string("driver-") + to_string(state), "",
               state == GpuState::kOk ? "the driver's library answers" : world_.gpu.reason());
}

bool SecondLine::look_at_pages() {
  const auto pages = pages_.look();
  if (!pages) return false;
  const auto now = world_.clock.now();
  for (const auto& slice : *pages) {
    if (!slice.remains) store_.change(slice.id, [&](LiveSlice& known) { known.take(slice, now); });
  }
  for (const auto& one : rescues_.look(*pages, now)) events_.note("rescues-repeat", one.slice, one.text());
  lifecycle_.reconcile(*pages);
  return true;
}

SecondLine::Seen SecondLine::seen() const {
  const MutexLock lock(mutex_);
  return seen_;
}

std::vector<WatchedSlice> SecondLine::watched_slices(bool pages_known) {
  for (const auto& id : local_.ids_in_cgroups()) {
    if (world_.cgroups == nullptr) break;
    const auto pids = world_.cgroups->pids(id);
    if (pids) store_.change(id, [&](LiveSlice& slice) { slice.members = *pids; });
  }
  const auto now = world_.clock.now();
  return store_.read([&](const SliceStore::State& state) {
    std::vector<WatchedSlice> watched;
    for (const auto& [id, slice] : state.slices) {
      WatchedSlice one{id,
                       slice.whole(),
                       slice.slices,
                       {slice.registered.begin(), slice.registered.end()},
                       slice.announced,
                       {},
                       pages_known,
                       spare_of(state.ledger, slice),
                       {},
                       {},
                       offender_of(slice),
                       now < slice.revoked_until};
      for (std::size_t i = 0; i < slice.slices.size(); ++i) {
        one.charged_percent.push_back(slice.charged_percent(i));
        one.granted_percent.push_back(slice.granted_percent(i));
        one.drained_percent.push_back(slice.drained_percent(i));
      }
      watched.push_back(std::move(one));
    }
    return watched;
  });
}

void SecondLine::round() {
  auto usage = world_.gpu.usage();
  note_gpu_state();
  // The pages are read after the driver's list. A process sends its hello before it uses a card, so every process of
  // the driver's list that has libcarve is in the pages' list.
  const bool arbiter_answers = look_at_pages();
  // While the arbiter does not answer, the known hellos may be from processes that have ended, and other processes may
  // have their PIDs now.
  const auto sightings = usage ? processes_.sightings_of(*usage, arbiter_answers) : std::vector<Sighting>();
  // An arbiter that has just restarted may not know all registered processes yet.
  const auto arbiter = pages_.state();
  const bool pages_known = arbiter.ok && world_.clock.now() - arbiter.since >= config_.arbiter_settles;
  const auto watched = watched_slices(pages_known);
  if (!usage) return;
  cards_.used(*usage);
  {
    const MutexLock lock(mutex_);
    seen_ = {*usage, sightings};
  }
  // Without the arbiter a registered process cannot be distinguished from one that never sent a hello, but memory and
  // cards can still be judged.
  const auto breaches = watchdog_.judge(watched, sightings, world_.clock.now());
  for (const auto& card : *usage) store_.set_beyond(card.card, watchdog_.beyond_limits(card.card));
  for (const auto& breach : breaches) act(breach);
  look_for_unexplained(*usage, watched, sightings);
  if (pages_known) correct_overheads(watched, sightings);
}

/// Reports the memory that the driver took beyond what was announced.
void SecondLine::correct_overheads(const std::vector<WatchedSlice>& watched, const std::vector<Sighting>& sightings) {
  auto overheads = Watchdog::overheads(watched, sightings);
  for (const auto& [where, bytes] : overheads) {
    // The smaller figure of two rounds. The driver's list and the pages are read one after the other, so memory that is
    // freed in between looks like overhead once. Memory that the driver really keeps is in both rounds.
    const auto before = overheads_.find(where);
    const Bytes lasting = before == overheads_.end() ? Bytes() : std::min(before->second, bytes);
    static_cast<void>(pages_.set_overhead(where.first, static_cast<std::uint32_t>(where.second),
                                          std::max(lasting, watchdog_.kept_back(where.first, where.second))));
  }
  overheads_ = std::move(overheads);
}

}  // namespace carve::agent
