#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ledger/ledger.h"

namespace carve {

/// Capacity on a node that is kept for a pod (the preemptor) while its victims terminate.
struct NominatedReservation {
  Owner owner;                  // the preemptor
  std::int32_t priority = 0;    // of the preemptor; a pod of a higher priority is not kept out
  std::vector<Slice> slices;    // what the preemptor will hold
  std::vector<Owner> going;     // its victims; on the cards of `slices`, they and the preemptor share one capacity
  friend bool operator==(const NominatedReservation&, const NominatedReservation&) = default;
};

/// A node's ledger as a pod of that priority sees it. Each foreign reservation counts on its cards as the larger of
/// what it is for and what its victims still hold, separately for memory and compute. The pod's own reservation does
/// not count. Where another owner took the capacity after all (a higher priority, a conflict), the card is shown as it
/// is.
///   cost    a copy without a reservation; else also add() per card of each reservation
[[nodiscard]] Ledger seen_by(const Owner& owner, std::int32_t priority, const Ledger& ledger,
                             const std::vector<NominatedReservation>& reservations);

}  // namespace carve
