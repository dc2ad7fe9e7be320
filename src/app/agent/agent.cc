#include "app/agent/agent.h"

#include <algorithm>
#include <map>
#include <utility>

namespace carve::agent {
namespace {
constexpr std::chrono::milliseconds kReapEvery{200};
constexpr std::chrono::milliseconds kWatchEvery{250};
constexpr std::chrono::milliseconds kWatchClosely{50};  // while a slice has short breaches
constexpr int kIdleRounds = 4;
constexpr std::chrono::milliseconds kHealthEvery{500};
}  // namespace

Result<void> Agent::restore_records() {
  const JournalState& journal = store_.journal_at_start();
  std::map<CardId, Bytes> held_on;
  for (const auto& held : slices_of(journal)) held_on[held.card] += held.memory;
  for (auto& slice : slices_in(journal)) {
    slice.made = world_.clock.now();
    slice.restored = true;
    slice.joined = slice.keep;  // its pages are requested immediately, without the settling time of a new slice
    for (const auto& held : slice.slices) {
      const bool known =
          store_.read([&](const SliceStore::State& state) { return state.ledger.find(held.card) != nullptr; });
      // The driver does not list the card now (or hangs), and the card is not remembered. The slice gets a stand-in
      // card, which is as large as the slices on it.
      if (!known) CARVE_TRY_VOID(cards_.put_stand_in(held.card, std::max(held_on[held.card], Bytes::mib(1))));
    }
    const std::string id = slice.id;
    if (auto added = store_.restore(std::move(slice)); !added) {
      return fail(Code::kDataLoss, "the journal's slice " + id + " does not fit: " + added.error().what);
    }
  }
  return {};
}

Result<void> Agent::restore() {
  names_.restore(store_.journal_at_start());
  cards_.recall();
  if (auto cards = cards_.adopt(); !cards) {
    world_.log.warn("cards are not known yet", {{"reason", cards.error().what}});
  }
  CARVE_TRY_VOID(restore_records());
  judge_cards({});
  card_files_.close(cards_.minors());
  CARVE_TRY_VOID(lifecycle_.remove_remains(events_));
  lifecycle_.publish_all();
  second_line_.thaw_containers();
  reap();
  static_cast<void>(second_line_.look_at_pages());
  return {};
}

std::optional<History> Agent::history_in(const AgentWorld& world, const NodeViews& views) {
  if (world.history == nullptr) return std::nullopt;
  return std::optional<History>(std::in_place, *world.history, [&views] { return views.of_last_round(); }, world.log);
}

Result<HistoryAnswer> Agent::history(const Caller& /*caller*/, const HistoryQuery& query) {
  if (!history_) return fail(Code::kUnimplemented, "this agent records no history");
  return history_->ask(query, world_.clock.wall_now());
}

void Agent::run_history(Clock& clock, const std::stop_token& stop) {
  if (history_) history_->run(clock, stop);
}

void Agent::reap() {
  second_line_.thaw();
  local_.reap();
  static_cast<void>(store_.settle());  // retried if the journal cannot be written
  prepared_.end_ended();
  if (!config_.gives_cards) static_cast<void>(names_.set_aside());  // likewise
}

void Agent::watch() {
  if (cards_.refresh()) lifecycle_.publish_all();
  second_line_.round();
}

void Agent::run_reaper(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    reap();
    if (world_.cgroups != nullptr) {
      world_.cgroups->wait_change(kReapEvery);
    } else {
      store_.wait_freed(kReapEvery);
    }
  }
}

void Agent::run_watch(Clock& clock, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    watch();
    // In the idle state it checks rarely, but it checks a new slice within one short round.
    for (int i = 0; i < kIdleRounds && !stop.stop_requested(); ++i) {
      clock.sleep_for(second_line_.needs_frequent_rounds() ? kWatchClosely : kWatchEvery, stop);
      if (store_.read([](const SliceStore::State& state) { return !state.slices.empty(); })) break;
    }
  }
}

void Agent::run_health(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    judge_cards(world_.gpu.wait_events(kHealthEvery));
    card_files_.close(cards_.minors());
  }
}

}  // namespace carve::agent
