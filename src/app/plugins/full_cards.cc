#include "app/plugins/full_cards.h"

#include <algorithm>

namespace carve::plugins {
namespace {

bool has_room(const Slice& asked, const std::vector<Slice>& held, const GpuInventory& cards) {
  const auto card =
      std::find_if(cards.cards.begin(), cards.cards.end(), [&](const Card& one) { return one.id == asked.card; });
  if (card == cards.cards.end()) return true;  // the card is gone: nothing is promised of it
  if (!card->health.ok) return false;
  Bytes memory = asked.memory;
  auto compute = asked.guarantee().hundredths();
  std::uint32_t slices = 1;
  for (const auto& slice : held) {
    if (slice.card != asked.card || slice.owner == asked.owner) continue;
    if (slice.exclusive || asked.exclusive) return false;
    memory += slice.memory;
    compute += slice.guarantee().hundredths();
    ++slices;
  }
  return memory <= card->memory && compute <= CoreShare::whole().hundredths() && slices <= kMaxSlicesPerCard;
}

}  // namespace

void FullCards::refused(const std::vector<Slice>& slices, const std::vector<Slice>& held, const GpuInventory& cards,
                        Clock::Time now) {
  const MutexLock lock(mutex_);
  for (const auto& slice : slices) {
    if (has_room(slice, held, cards)) continue;
    auto [entry, fresh] = refused_.try_emplace(slice.card, Refused{slice, now});
    entry->second.last = now;
    if (slice.memory < entry->second.smallest.memory) entry->second.smallest = slice;
  }
}

std::set<CardId> FullCards::cards(const std::vector<Slice>& held, const GpuInventory& cards, Clock::Time now) {
  const MutexLock lock(mutex_);
  std::erase_if(refused_, [&](const auto& entry) {
    return now - entry.second.last >= kForget || has_room(entry.second.smallest, held, cards);
  });
  std::set<CardId> full;
  for (const auto& [card, one] : refused_) full.insert(card);
  return full;
}

}  // namespace carve::plugins
