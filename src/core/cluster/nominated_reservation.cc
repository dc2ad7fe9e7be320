#include "core/cluster/nominated_reservation.h"

#include <algorithm>
#include <map>

namespace carve {
namespace {

/// The sum of these slices of one owner on one card, as one slice of the preemptor.
Slice sum_as(const Owner& owner, std::string part, Phase phase, const std::vector<Slice>& slices) {
  const Holding sum = holding_of(slices.data(), slices.data() + slices.size());
  Slice one = slices.front();
  one.owner = owner;
  one.part = std::move(part);
  one.phase = phase;
  one.memory = sum.memory;
  one.compute = sum.compute;
  one.share = sum.compute == CoreShare() ? ShareClass::kBestEffort : ShareClass::kFixed;
  one.exclusive = sum.exclusive;
  one.whole = sum.whole;
  return one;
}

using PerOwner = std::map<Owner, std::vector<Slice>>;

void keep_on_card(const NominatedReservation& hold, const std::vector<Slice>& wanted, const PerOwner& going,
                  Ledger* ledger) {
  // An owner's holding is the larger of its largest init part and the sum of its run parts. This capacity is computed
  // in the same way: the preemptor's slices as an init part, the victims' as run parts.
  std::vector<Slice> room{sum_as(hold.owner, "held", Phase::kInit, wanted)};
  std::vector<Slice> as_it_is;
  for (const auto& [owner, slices] : going) {
    room.push_back(sum_as(hold.owner, "going-" + std::to_string(room.size()), Phase::kRun, slices));
    as_it_is.insert(as_it_is.end(), slices.begin(), slices.end());
  }
  if (ledger->add(room, Ledger::Admission::kRestored)) return;
  (void)ledger->add(as_it_is, Ledger::Admission::kRestored);  // they were booked here before, so they fit
}

void keep(const NominatedReservation& hold, Ledger* ledger) {
  std::map<CardId, std::vector<Slice>> wanted;
  for (const Slice& slice : hold.slices) wanted[slice.card].push_back(slice);
  std::map<CardId, PerOwner> going;
  for (const Owner& owner : hold.going) {
    std::vector<Slice> elsewhere;
    for (const Slice& slice : ledger->slices_of(owner)) {
      if (wanted.contains(slice.card)) {
        going[slice.card][owner].push_back(slice);
      } else {
        elsewhere.push_back(slice);
      }
    }
    ledger->remove_owner(owner);
    if (!elsewhere.empty()) (void)ledger->add(elsewhere, Ledger::Admission::kRestored);
  }
  for (const auto& [card, slices] : wanted) keep_on_card(hold, slices, going[card], ledger);
}

}  // namespace

Ledger seen_by(const Owner& owner, std::int32_t priority, const Ledger& ledger,
               const std::vector<NominatedReservation>& reservations) {
  Ledger seen = ledger;
  for (const NominatedReservation& hold : reservations) {
    if (hold.owner != owner && hold.priority >= priority) keep(hold, &seen);
  }
  return seen;
}

}  // namespace carve
