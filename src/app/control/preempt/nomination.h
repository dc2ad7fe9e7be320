#pragma once

#include <optional>
#include <set>

#include "app/control/state/pod_entry.h"
#include "core/cluster/cluster.h"

namespace carve::control {

/// The room that a pod's nominatedNodeName keeps on that node. Every reader of the pod computes the same room,
/// regardless of which component wrote the nomination. nullopt: the pod will not fit there even when all ending pods
/// are gone.
///   in      there: the nominated node, with its existing nominated reservations
///           going: all ending owners, on any node (PreemptionCandidates)
///   cost    place_pod()
[[nodiscard]] std::optional<NominatedReservation> reservation_of_nomination(const PodEntry& pod, const NodeState& there,
                                                                            const std::set<Owner>& going,
                                                                            const PolicyRow& policy);

}  // namespace carve::control
