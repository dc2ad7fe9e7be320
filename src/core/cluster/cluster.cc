#include "core/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace carve {
namespace {

/// The policy's word on a node: the mean of its words on the cards that it would give, each as it
/// is now.
std::int64_t score_of(const Ledger& ledger, const std::vector<Slice>& slices,
                      const PolicyRow& policy) {
  std::int64_t sum = 0;
  for (const Slice& slice : slices) {
    sum += policy.score(*ledger.find(slice.card), {slice.memory, slice.compute, slice.guarantee()});
  }
  return slices.empty() ? 0 : sum / static_cast<std::int64_t>(slices.size());
}

}  // namespace

Fit fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
        const std::vector<std::string>& names, const PolicyRow& policy,
        std::int32_t priority) {
  Fit result;
  for (const std::string& name : names) {
    const auto node = cluster.find(name);
    if (node == cluster.end()) {
      result.refused.push_back({name, "no card of ours on it", true});
      continue;
    }
    const NodeState& state = *node->second;
    if (std::binary_search(state.reserved.begin(), state.reserved.end(), owner)) {
      result.nodes.push_back({name, std::numeric_limits<std::int64_t>::max() / 64});
      continue;
    }
    const SeenLedger seen(state, owner, priority);
    const auto placed = place_pod(*seen, state.links, owner, parts, policy);
    if (placed) {
      result.nodes.push_back({name, score_of(*seen, *placed, policy)});
    } else {
      const bool final = placed.error().code == Code::kFailedPrecondition ||
                         placed.error().code == Code::kInvalidArgument;
      result.refused.push_back({name, placed.error().what, final});
    }
  }
  return result;
}

const FittingNode* choose_node(const std::vector<FittingNode>& nodes) {
  const FittingNode* best = nullptr;
  for (const FittingNode& node : nodes) {
    if (best == nullptr || node.score > best->score ||
        (node.score == best->score && node.node < best->node)) {
      best = &node;
    }
  }
  return best;
}

std::vector<RefusedGroup> grouped(const std::vector<RefusedNode>& refused) {
  std::map<std::string, std::size_t> counts;
  for (const RefusedNode& node : refused) ++counts[node.why];
  std::vector<RefusedGroup> groups;
  for (const auto& [why, count] : counts) groups.push_back({count, why});
  std::stable_sort(groups.begin(), groups.end(),
                   [](const RefusedGroup& a, const RefusedGroup& b) { return a.nodes > b.nodes; });
  return groups;
}

std::string explain(const std::vector<RefusedGroup>& groups, std::size_t most) {
  std::string text;
  std::size_t rest = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const RefusedGroup& group = groups[i];
    if (i >= most) {
      rest += group.nodes;
      continue;
    }
    text += fmt::format("{}{} node{}: {}", i == 0 ? "" : "; ", group.nodes, group.nodes == 1 ? "" : "s", group.why);
  }
  if (rest > 0) text += fmt::format("; {} more for other reasons", rest);
  return text;
}

std::string explain(const std::vector<RefusedNode>& refused, std::size_t most) {
  return explain(grouped(refused), most);
}

}  // namespace carve
