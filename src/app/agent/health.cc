#include <algorithm>
#include <utility>

#include "app/agent/agent.h"

// The cards' health: every 500 ms the driver's reports are judged and the verdicts are entered in the ledger, where the
// kubelet interfaces, the views and the placement read them. It has a thread of its own, which continues while the
// driver hangs.
namespace carve {
namespace {
constexpr std::chrono::milliseconds kHealthEvery{500};
constexpr Clock::Duration kSaveAgain = std::chrono::seconds(5);
}  // namespace

/// Under state_. All readers take a card's health from the ledger.
bool Agent::apply_verdicts() {
  bool healed = false;
  for (const auto& [id, health] : books_.watch.verdicts(world_.clock.now())) {
    const CardState* state = ledger_.find(id);
    if (state == nullptr || state->card.health == health) continue;
    healed = healed || health.ok;
    static_cast<void>(ledger_.set_health(id, health));
  }
  return healed;
}

void Agent::judge_cards(const std::vector<GpuEvent>& events) {
  std::vector<CardNews> news;
  bool healed = false;
  const GpuState driver = world_.gpu.state();
  const std::string reason = world_.gpu.reason();
  {
    const std::lock_guard lock(state_);
    const auto now = world_.clock.now();
    books_.watch.driver(driver, reason, now);
    for (const auto& event : events) books_.watch.event(event, now);
    healed = apply_verdicts();
    news = books_.watch.news(now);
    for (const auto& one : news) {
      if (one.program) program_errors_.push_back(*one.program);
      if (program_errors_.size() > kMostProgramErrors) program_errors_.pop_front();
    }
  }
  if (healed) freed_.notify_all();
  for (const auto& one : news) note_event(one.kind, "", one.text);
  remember_cards();
}

std::vector<ProgramError> Agent::take_program_errors() {
  const std::lock_guard lock(state_);
  const auto taken = std::exchange(program_errors_, {});
  return {taken.begin(), taken.end()};
}

void Agent::run_health(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    judge_cards(world_.gpu.wait_events(kHealthEvery));
    close_card_files();
  }
}

/// Runs before the first call of the driver: the driver may be away, and the node still has its cards.
void Agent::recall_cards() {
  if (world_.known_cards == nullptr) return;
  auto known = world_.known_cards->load();
  if (!known) {
    if (known.error().code != Code::kNotFound)
      world_.log.error("what was known of the cards is lost", {{"error", known.error().what}});
    return;
  }
  const std::lock_guard lock(state_);
  const bool same_boot = !config_.boot_id.empty() && known->boot_id == config_.boot_id;
  const auto now = world_.clock.now();
  books_.watch.restore(*known, same_boot, now);
  inventory_.driver_version = known->driver_version;
  inventory_.cuda_version = known->cuda_version;
  inventory_.files = {known->cuda_file, known->nvml_file};
  for (const auto& one : known->cards) {
    Card card = one.card;
    card.health = {false, "not seen yet: the driver has not answered since the agent started"};
    if (!ledger_.put_card(card)) continue;
    inventory_.cards.push_back(card);
    inventory_.pci_bus_ids.push_back(one.pci_bus_id);
    if (!same_boot) books_.from_other_boot.insert(card.id);
  }
  books_.saved = std::move(*known);
}

/// Saves the cards if they differ from the saved file. One caller at a time: the health thread, and restore().
void Agent::remember_cards() {
  if (world_.known_cards == nullptr) return;
  KnownCards known;
  {
    const std::lock_guard lock(state_);
    if (!books_.driver_known || world_.clock.now() < books_.save_not_before) return;
    known = {config_.boot_id,        inventory_.driver_version, inventory_.cuda_version,
             inventory_.files.cuda, inventory_.files.nvml,     {}};
    for (std::size_t i = 0; i < inventory_.cards.size(); ++i) {
      KnownCard one{inventory_.cards[i],
                    i < inventory_.pci_bus_ids.size() ? inventory_.pci_bus_ids[i] : std::string(),
                    books_.watch.held(inventory_.cards[i].id)};
      one.card.health = {};
      known.cards.push_back(std::move(one));
    }
  }
  if (known == books_.saved) return;
  if (const auto saved = world_.known_cards->save(known); !saved) {
    world_.log.error("what is known of the cards is not saved", {{"error", saved.error().what}});
    const std::lock_guard lock(state_);
    books_.save_not_before = world_.clock.now() + kSaveAgain;
    return;
  }
  books_.saved = std::move(known);
}

/// Under state_. Returns the cards of a new list together with the known cards that are missing from it. Missing cards
/// keep their place, so that the published names of the others stay the same. A missing card belongs to another machine
/// if it is known only from another boot, or if the new list contains none of the known cards. Such a card is removed
/// when no slice is on it.
GpuInventory Agent::with_missing(GpuInventory fresh) {
  const auto is_fresh = [&fresh](const CardId& id) {
    return std::any_of(fresh.cards.begin(), fresh.cards.end(), [&](const Card& card) { return card.id == id; });
  };
  const auto& before = inventory_.cards;
  const bool some_stay = before.empty() || fresh.cards.empty() ||
                         std::any_of(before.begin(), before.end(), [&](const Card& card) { return is_fresh(card.id); });
  for (std::size_t i = 0; i < before.size(); ++i) {
    const CardId id = before[i].id;
    if (is_fresh(id)) {
      books_.from_other_boot.erase(id);
      continue;
    }
    const bool goes = !some_stay || books_.from_other_boot.count(id) != 0;
    if (goes && ledger_.remove_card(id)) {
      books_.watch.forget(id);
      books_.from_other_boot.erase(id);
      continue;
    }
    const auto at = static_cast<std::ptrdiff_t>(std::min(i, fresh.cards.size()));
    const auto bus = static_cast<std::ptrdiff_t>(std::min(i, fresh.pci_bus_ids.size()));
    fresh.cards.insert(fresh.cards.begin() + at, before[i]);
    fresh.pci_bus_ids.insert(fresh.pci_bus_ids.begin() + bus,
                             i < inventory_.pci_bus_ids.size() ? inventory_.pci_bus_ids[i] : std::string());
  }
  return fresh;
}

}  // namespace carve
