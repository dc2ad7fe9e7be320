#pragma once

#include <cstddef>
#include <string>

#include "app/control/cluster_model.h"
#include "codec/views/cluster_view.h"
#include "core/policy/rules.h"

namespace carve::control {

/// Why nothing new is put on that card, however healthy it is: an operator's mark, or another door that gives it out.
/// Empty: it may be. Its GPU object does not say so, as the node does not know.
[[nodiscard]] std::string why_closed(const ClusterState& cluster, const codec::GpuObject& gpu);

/// Who is on which card, and who waits, as the model knows it now: what the nodes say, and what the ledger books beyond
/// that (pods that were bound just now, room that is set aside, nodes whose agent is away). Without the question why
/// somebody waits, which view_with_whys() answers.
///   cost    a copy of every GPU object; the model's snapshot()
[[nodiscard]] codec::ClusterView view_of(const ClusterModel& model);

/// The same, and why they wait: filter's words of this moment, for the first kWhys of them (`carve explain` says more,
/// of any pod).
///   cost    fit() of all nodes for each of those
[[nodiscard]] codec::ClusterView view_with_whys(const ClusterModel& model, const PlacementRules& rules);
inline constexpr std::size_t kWhys = 64;

}  // namespace carve::control
