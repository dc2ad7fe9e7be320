#include "core/cluster/ranking.h"

#include <algorithm>

namespace carve {
namespace {

RankedNode ranked(const NodeState& state, const Owner& owner, const std::vector<PartRequest>& parts,
                  const FittingNode& fitting, const Policies& policies, std::string_view namespace_name,
                  std::int32_t priority) {
  const SeenLedger seen(state, owner, priority);
  RankedNode node{fitting.node, fitting.score, to_human(policies, namespace_name), {}, {}};
  for (const CardState& card : (*seen).cards()) {
    const bool mixed = std::any_of(parts.begin(), parts.end(), [&](const PartRequest& part) {
      return has_opposite_class(card, part.request.priority);
    });
    node.cards.push_back({card.card.id, left_after(card, {}), {}, mixed});
  }
  const auto placed = place_pod(*seen, state.links, owner, parts, *policies.card);
  if (!placed) return node;  // capacity is set aside for it
  node.left = leftover_of(*seen, *placed);
  for (const Slice& slice : *placed) {
    const auto card = std::find_if(node.cards.begin(), node.cards.end(),
                                   [&](const RankedCard& one) { return one.card == slice.card; });
    card->gives.push_back(slice.part);
  }
  return node;
}

}  // namespace

std::vector<RankedNode> ranking(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
                                std::vector<FittingNode> fitting, const PodPolicy& policy,
                                std::string_view namespace_name, std::size_t most, std::int32_t priority) {
  std::sort(fitting.begin(), fitting.end(), [](const FittingNode& a, const FittingNode& b) {
    return a.score != b.score ? a.score > b.score : a.node < b.node;
  });
  std::vector<RankedNode> nodes;
  for (const FittingNode& one : fitting) {
    if (nodes.size() == most) break;
    const auto found = cluster.find(one.node);
    if (found == cluster.end()) continue;
    nodes.push_back(
        ranked(*found->second, owner, parts, one, policy.on(found->second->labels), namespace_name, priority));
  }
  return nodes;
}

}  // namespace carve
