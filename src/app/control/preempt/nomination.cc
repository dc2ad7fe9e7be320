#include "app/control/preempt/nomination.h"

#include <utility>

#include "core/policy/place_pod.h"

namespace carve::control {

std::optional<NominatedReservation> reservation_of_nomination(const PodEntry& pod, const NodeState& there,
                                                              const std::set<Owner>& going, const PolicyRow& policy) {
  Ledger rest = *SeenLedger(there, pod.owner(), pod.object.priority);
  std::vector<Owner> from_here;
  for (const Owner& owner : going) {
    if (!there.ledger.slices_of(owner).empty() && rest.remove_owner(owner) != 0) from_here.push_back(owner);
  }
  auto placed = place_pod(rest, there.links, pod.owner(), pod.parts, policy);
  if (!placed) return std::nullopt;
  return NominatedReservation{pod.owner(), pod.object.priority, std::move(*placed), std::move(from_here)};
}

}  // namespace carve::control
