#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ledger/ledger.h"

namespace carve {

/// Room on a node that is kept for a pod while others go for it.
struct NominatedReservation {
  Owner owner;                  // whose room it will be
  std::int32_t priority = 0;    // its own: who has a higher one is not kept out
  std::vector<Slice> slices;    // what it will hold
  std::vector<Owner> going;     // who goes for it; on the cards of `slices` they and it share one room
  friend bool operator==(const NominatedReservation&, const NominatedReservation&) = default;
};

/// A node's ledger as somebody sees it who comes with that priority: where a hold is in its way, the larger of what it
/// is for and what those who go still hold is taken, of memory and compute each. Its own hold is not in its way. Where
/// the room went to somebody else after all (a higher priority, a conflict) the card is as it is.
///   cost    nothing without a hold but a copy; else add() per card of one
[[nodiscard]] Ledger seen_by(const Owner& owner, std::int32_t priority, const Ledger& ledger,
                             const std::vector<NominatedReservation>& reservations);

}  // namespace carve
