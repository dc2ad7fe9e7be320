#include "app/agent/node_cards.h"

#include <algorithm>
#include <utility>

namespace carve::agent {
namespace {
constexpr Clock::Duration kSaveAgain = std::chrono::seconds(5);
}  // namespace

bool NodeCards::apply_verdicts() {
  bool healed = false;
  for (const auto& [id, health] : watch_.verdicts(world_.clock.now())) {
    healed = (store_.set_health(id, health) && health.ok) || healed;
  }
  return healed;
}

void NodeCards::judge(const std::vector<GpuEvent>& events) {
  std::vector<CardNews> news;
  bool healed = false;
  const GpuState driver = world_.gpu.state();
  const std::string reason = world_.gpu.reason();
  {
    const MutexLock lock(mutex_);
    const auto now = world_.clock.now();
    watch_.driver(driver, reason, now);
    for (const auto& event : events) watch_.event(event, now);
    healed = apply_verdicts();
    news = watch_.news(now);
    for (const auto& one : news) {
      if (one.program) program_errors_.push_back(*one.program);
      if (program_errors_.size() > NodeSlices::kMostProgramErrors) program_errors_.pop_front();
    }
  }
  if (healed) store_.wake_waiting();
  for (const auto& one : news) events_.note(one.kind, "", one.text);
  remember();
}

std::vector<ProgramError> NodeCards::take_program_errors() {
  const MutexLock lock(mutex_);
  const auto taken = std::exchange(program_errors_, {});
  return {taken.begin(), taken.end()};
}

void NodeCards::recall() {
  if (world_.known_cards == nullptr) return;
  auto known = world_.known_cards->load();
  if (!known) {
    if (known.error().code != Code::kNotFound)
      world_.log.error("the saved state of the cards is lost", {{"error", known.error().what}});
    return;
  }
  const MutexLock lock(mutex_);
  const bool same_boot = !config_.boot_id.empty() && known->boot_id == config_.boot_id;
  watch_.restore(*known, same_boot, world_.clock.now());
  inventory_.driver_version = known->driver_version;
  inventory_.cuda_version = known->cuda_version;
  inventory_.files = {known->cuda_file, known->nvml_file};
  for (const auto& one : known->cards) {
    Card card = one.card;
    card.health = {false, "not seen yet: the driver has not answered since the agent started"};
    if (!store_.put_card(card)) continue;
    inventory_.cards.push_back(card);
    inventory_.pci_bus_ids.push_back(one.pci_bus_id);
    if (!same_boot) from_other_boot_.insert(card.id);
  }
  saved_ = std::move(*known);
}

/// Saves the cards if they differ from the saved file.
void NodeCards::remember() {
  if (world_.known_cards == nullptr) return;
  KnownCards known;
  {
    const MutexLock lock(mutex_);
    if (!driver_known_ || world_.clock.now() < save_not_before_) return;
    known = {config_.boot_id,       inventory_.driver_version, inventory_.cuda_version,
             inventory_.files.cuda, inventory_.files.nvml,     {}};
    for (std::size_t i = 0; i < inventory_.cards.size(); ++i) {
      KnownCard one{inventory_.cards[i], i < inventory_.pci_bus_ids.size() ? inventory_.pci_bus_ids[i] : std::string(),
                    watch_.held(inventory_.cards[i].id)};
      one.card.health = {};
      known.cards.push_back(std::move(one));
    }
  }
  if (known == saved_) return;
  if (const auto saved = world_.known_cards->save(known); !saved) {
    world_.log.error("the state of the cards is not saved", {{"error", saved.error().what}});
    const MutexLock lock(mutex_);
    save_not_before_ = world_.clock.now() + kSaveAgain;
    return;
  }
  saved_ = std::move(known);
}

Result<void> NodeCards::put_stand_in(const CardId& card, Bytes size) {
  Card stand_in;
  stand_in.id = card;
  stand_in.model = "unknown";
  stand_in.memory = size;
  stand_in.health = {false, "not listed by the driver since the agent started"};
  const MutexLock lock(mutex_);
  stand_ins_.insert(card);
  return store_.put_card(std::move(stand_in));
}

Result<void> NodeCards::adopt() {
  auto inventory = world_.gpu.inventory();
  if (!inventory) return tl::unexpected(inventory.error());
  links_.make(inventory->driver_version);
  const MutexLock lock(mutex_);
  const auto now = world_.clock.now();
  for (const auto& card : inventory->cards) {
    stand_ins_.erase(card.id);
    if (auto put = store_.put_card(card); !put) {
      world_.log.error("card is not used", {{"card", card.id.str()}, {"error", put.error().what}});
    }
  }
  watch_.listed(*inventory, now);
  watch_.driver(GpuState::kOk, "", now);
  inventory_ = with_missing(std::move(*inventory));
  driver_known_ = true;
  listed_at_ = now;
  static_cast<void>(apply_verdicts());
  stale_ = false;
  return {};
}

bool NodeCards::refresh() {
  look_for_lost();
  // When a driver returns (or is replaced), the cards may be different.
  if (stale_ || world_.gpu.state() != GpuState::kOk) {
    stale_ = true;
    return adopt().has_value();
  }
  // If the disk was full when a driver was first detected, fractions must become available again without a restart of
  // the agent.
  if (links_.failed()) links_.make(inventory().driver_version);
  return false;
}

/// A card that is not listed may be listed next time. A lost card is listed again only by a reopened library.
void NodeCards::look_for_lost() {
  constexpr Clock::Duration kListAgain = std::chrono::seconds(2);
  constexpr Clock::Duration kRenewAgain = std::chrono::seconds(30);
  const auto now = world_.clock.now();
  bool lost = false;
  {
    const MutexLock lock(mutex_);
    lost = watch_.any_lost(now);
    if (watch_.any_unlisted() && now - listed_at_ >= kListAgain) stale_ = true;
  }
  if (!lost) renewed_at_ = now;
  if (!lost || now - renewed_at_ < kRenewAgain) return;
  renewed_at_ = now;
  world_.gpu.renew();
  stale_ = true;
}

/// Returns the cards of a new list together with the known cards that are missing from it. Missing cards keep their
/// place, so that the published names of the others stay the same. A missing card belongs to another machine if it is
/// known only from another boot, or if the new list contains none of the known cards. Such a card is removed when no
/// slice is on it.
GpuInventory NodeCards::with_missing(GpuInventory fresh) {
  const auto is_fresh = [&fresh](const CardId& id) {
    return std::any_of(fresh.cards.begin(), fresh.cards.end(), [&](const Card& card) { return card.id == id; });
  };
  const auto& before = inventory_.cards;
  const bool some_stay = before.empty() || fresh.cards.empty() ||
                         std::any_of(before.begin(), before.end(), [&](const Card& card) { return is_fresh(card.id); });
  for (std::size_t i = 0; i < before.size(); ++i) {
    const CardId id = before[i].id;
    if (is_fresh(id)) {
      from_other_boot_.erase(id);
      continue;
    }
    const bool goes = !some_stay || from_other_boot_.count(id) != 0;
    if (goes && store_.remove_card(id)) {
      watch_.forget(id);
      from_other_boot_.erase(id);
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

void NodeCards::used(const std::vector<GpuUsage>& usage) {
  const MutexLock lock(mutex_);
  watch_.used(usage, world_.clock.now());
  static_cast<void>(apply_verdicts());
}

GpuInventory NodeCards::inventory() const {
  const MutexLock lock(mutex_);
  return inventory_;
}

GpuInventory NodeCards::offered() const {
  const MutexLock lock(mutex_);
  GpuInventory seen = inventory_;
  const auto cards = store_.read([](const SliceStore::State& state) {
    std::vector<Card> all;
    for (const auto& one : state.ledger.cards()) all.push_back(one.card);
    return all;
  });
  for (const auto& card : cards) {
    const auto known =
        std::find_if(seen.cards.begin(), seen.cards.end(), [&](const Card& one) { return one.id == card.id; });
    if (known != seen.cards.end()) {
      known->health = card.health;
      continue;
    }
    if (stand_ins_.count(card.id) != 0) continue;  // its data is unknown, so it cannot be offered
    seen.cards.push_back(card);
    seen.pci_bus_ids.emplace_back();
  }
  return seen;
}

bool NodeCards::driver_known() const {
  const MutexLock lock(mutex_);
  return driver_known_;
}

bool NodeCards::driver_is_away() const {
  const MutexLock lock(mutex_);
  return watch_.driver_is_away(world_.clock.now());
}

std::map<CardId, CardXids> NodeCards::xids() const {
  std::map<CardId, CardXids> all;
  const MutexLock lock(mutex_);
  for (const auto& card : inventory_.cards) all.emplace(card.id, watch_.xids(card.id));
  return all;
}

std::vector<int> NodeCards::minors() const {
  return store_.read([](const SliceStore::State& state) {
    std::vector<int> all;
    for (const auto& one : state.ledger.cards()) {
      if (one.card.minor >= 0) all.push_back(one.card.minor);
    }
    return all;
  });
}

}  // namespace carve::agent
