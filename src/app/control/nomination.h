#pragma once

#include <optional>
#include <set>

#include "app/control/pod_entry.h"
#include "core/cluster/cluster.h"

namespace carve::control {

/// The room that a pod's nominatedNodeName keeps on that node: whoever named it, everybody who reads the pod comes to
/// the same. nullopt: it does not fit there even once those have gone who are going.
///   in      there: the node that is named, with the holds that are there already
///           going: everybody who goes, on whatever node (PreemptionCandidates)
///   cost    place_pod()
[[nodiscard]] std::optional<NominatedReservation> reservation_of_nomination(const PodEntry& pod, const NodeState& there,
                                                     const std::set<Owner>& going, const PolicyRow& policy);

}  // namespace carve::control
