#include "app/plugins/slot_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve::plugins {

std::vector<std::string> sorted(std::vector<std::string> slots) {
  std::sort(slots.begin(), slots.end());
  return slots;
}

std::string slot_id(std::size_t number) { return fmt::format("slot-{:04}", number); }

bool SlotList::update(const GpuInventory& cards, const std::set<std::string>& used) {
  const auto before = devices_;
  cards_ = std::max(cards_, cards.cards.size());
  const auto total = slots_of(cards_);
  while (devices_.size() < total) devices_.push_back({slot_id(devices_.size()), true});
  const auto healthy = static_cast<std::size_t>(
      std::count_if(cards.cards.begin(), cards.cards.end(), [](const Card& card) { return card.health.ok; }));
  // With more than 16 cards a card has fewer than 64 slots, so the unhealthy slots are a proportion of the total.
  const auto wanted = cards_ == 0 ? 0 : total - total * std::min(healthy, cards_) / cards_;
  std::size_t out = 0;
  for (auto& device : devices_) {
    if (used.contains(device.id)) device.healthy = true;
    if (!device.healthy && ++out > wanted) {
      device.healthy = true;
      --out;
    }
  }
  for (auto at = devices_.rbegin(); at != devices_.rend() && out < wanted; ++at) {
    if (!at->healthy || used.contains(at->id)) continue;
    at->healthy = false;
    ++out;
  }
  return devices_ != before;
}

}  // namespace carve::plugins
