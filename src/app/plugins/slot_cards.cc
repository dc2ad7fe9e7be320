#include "app/plugins/slot_cards.h"

#include <string>

#include "codec/record.h"
#include "core/model/record.h"

namespace carve::plugins {

std::set<CardId> cards_of_slots(const std::vector<Slice>& held, const std::vector<codec::NodePod>& pods) {
  std::set<CardId> cards;
  for (const auto& slice : held) {
    if (slice.owner.kind == OwnerKind::kPod) cards.insert(slice.card);
  }
  for (const auto& pod : pods) {
    if (pod.ended || pod.record.empty()) continue;
    const auto record = codec::decode_record(pod.record);
    if (!record || record->owner != Owner{OwnerKind::kPod, pod.uid}) continue;
    for (const auto& slice : slices_of(*record)) cards.insert(slice.card);
  }
  return cards;
}

std::set<CardId> SlotCards::step(const std::set<CardId>& in_use, Clock::Time now) {
  for (const auto& card : in_use) last_used_[card] = now;
  std::erase_if(last_used_, [&](const auto& one) { return now - one.second > kLonger; });
  std::set<CardId> cards;
  for (const auto& [card, when] : last_used_) cards.insert(card);
  return cards;
}

}  // namespace carve::plugins
