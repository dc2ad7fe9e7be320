#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"
#include "codec/views/cluster_view.h"
#include "core/policy/rules.h"

namespace carve::control {

/// Adds what the GPU objects do not contain: the slices that the ledger books beyond them (recently bound pods, room
/// set aside, nodes without a running agent), and what an administrator states elsewhere (why the card is closed to
/// new slices regardless of its health, and its mode). `cluster`: a snapshot of the model.
void add_unreported(const ClusterModel& model, const ClusterState& cluster, std::vector<codec::GpuObject>* cards);

/// Why the pod waits: the current answer of filter.
///   cost    fit() of all nodes
[[nodiscard]] std::string why_it_waits(const PodEntry& pod, const ClusterModel& model, const ClusterState& cluster,
                                       const PlacementRules& rules);

/// The slices on each card, and the waiting pods, from the current model: what the nodes report, what the ledger books
/// beyond that (recently bound pods, room set aside, nodes without a running agent), and the rooms of claims. Without
/// the reasons why pods wait, see view_with_whys().
///   cost    a copy of every GPU object; the model's snapshot()
[[nodiscard]] codec::ClusterView view_of(const ClusterModel& model, const ClaimBook& claims);

/// The same, with the reasons why pods wait: the current answers of filter, for the first kWhys waiting pods
/// (`carve explain` says more, about any pod).
///   cost    fit() of all nodes for each of these pods
[[nodiscard]] codec::ClusterView view_with_whys(const ClusterModel& model, const ClaimBook& claims,
                                                const PlacementRules& rules);
inline constexpr std::size_t kWhys = 64;

}  // namespace carve::control
