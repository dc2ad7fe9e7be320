#include "core/cluster/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace carve {
namespace {

bool goes_first(const Booking& a, const Booking& b) {
  return std::tuple(!a.prepared, ~a.epoch, a.reserved, a.owner) <
         std::tuple(!b.prepared, ~b.epoch, b.reserved, b.owner);
}

/// A booking's slices by card: whether they fit is decided for each card separately.
std::map<CardId, std::vector<Slice>> by_card(const Booking& booking) {
  std::map<CardId, std::vector<Slice>> cards;
  for (const Slice& slice : booking.slices) cards[slice.card].push_back(slice);
  return cards;
}

/// Books all slices in one call, which nearly always succeeds. Where all of them fit together, every subset fits too,
/// and the sums do not depend on the order.
bool book_together(Ledger* ledger, const std::vector<Booking>& bookings) {
  std::vector<Slice> all;
  for (const Booking& booking : bookings) all.insert(all.end(), booking.slices.begin(), booking.slices.end());
  return ledger->add(all, Ledger::Admission::kRestored).has_value();
}

void close_card(Ledger* ledger, const CardId& id, const std::string& why) {
  const CardState* state = ledger->find(id);
  if (state == nullptr || !state->card.closed.empty()) return;
  Card card = state->card;
  card.closed = why;
  (void)ledger->put_card(std::move(card));  // the size is the same, so this cannot be refused
}

}  // namespace

Assembled assemble(NodeParts parts) {
  Assembled result;
  Ledger& ledger = result.state.ledger;
  for (Card& card : parts.cards) {
    const CardId id = card.id;
    if (auto put = ledger.put_card(std::move(card)); !put) result.conflicts.push_back({{}, id, put.error().what});
  }
  result.state.links = std::move(parts.links);
  result.state.labels = std::move(parts.labels);
  result.state.closed = std::move(parts.closed);
  result.state.closed_to = std::move(parts.closed_to);
  std::sort(parts.bookings.begin(), parts.bookings.end(), goes_first);
  std::vector<std::pair<CardId, std::string>> close;
  const bool all_fits = book_together(&ledger, parts.bookings);
  for (const Booking& booking : parts.bookings) {
    for (const auto& [card, slices] : all_fits ? std::map<CardId, std::vector<Slice>>() : by_card(booking)) {
      const auto added = ledger.add(slices, Ledger::Admission::kRestored);
      if (added) continue;
      // The same owner from two sources: the first booking, which is the more certain one, is kept.
      result.conflicts.push_back({booking.owner, card, added.error().what});
      close.emplace_back(card, fmt::format("closed: {} {} was placed on it and does not fit",
                                           to_string(booking.owner.kind), booking.owner.uid));
    }
    if (booking.reserved) result.state.reserved.push_back(booking.owner);
  }
  for (const auto& [card, why] : close) close_card(&ledger, card, why);
  std::sort(result.state.reserved.begin(), result.state.reserved.end());
  return result;
}

}  // namespace carve
