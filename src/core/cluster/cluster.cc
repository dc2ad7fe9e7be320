#include "core/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/cluster/ruled_fit.h"

namespace carve {

const std::string& closed_by_dialect(const NodeState& node, const std::vector<PartRequest>& parts) {
  static const std::string kOpen;
  if (node.closed_to.empty()) return kOpen;
  for (const PartRequest& part : parts) {
    if (const auto why = node.closed_to.find(part.request.dialect); why != node.closed_to.end()) return why->second;
  }
  return kOpen;
}

const std::string& closed_for(const NodeState& node, const std::vector<PartRequest>& parts) {
  return node.closed.empty() ? closed_by_dialect(node, parts) : node.closed;
}

NodeAnswer answer_of_node(const NodeState& state, const Owner& owner, const std::vector<PartRequest>& parts,
                          const PodPolicy& policy, std::int32_t priority) {
  if (!state.closed.empty()) return {false, false, 0, state.closed, UnschedulableReason::kAgentLeaving};
  if (const auto& why = closed_by_dialect(state, parts); !why.empty())
    return {false, false, 0, why, UnschedulableReason::kConflictingPlugin};
  const Policies rows = policy.on(state.labels);
  const SeenLedger seen(state, owner, priority);
  const auto placed = place_pod(*seen, state.links, owner, parts, *rows.card);
  if (placed) return {true, false, score_of(*rows.node, leftover_of(*seen, *placed)), {}};
  const Code code = placed.error().code;
  return {false, code == Code::kFailedPrecondition || code == Code::kInvalidArgument, 0, placed.error().what,
          unschedulable_reason_on(*seen, parts)};
}

bool is_reserved_for(const NodeState& state, const Owner& owner, const std::vector<PartRequest>& parts) {
  return std::binary_search(state.reserved.begin(), state.reserved.end(), owner) && closed_for(state, parts).empty();
}

Fit fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
        const std::vector<std::string>& names, const PodPolicy& policy, std::int32_t priority) {
  Fit result;
  for (const std::string& name : names) {
    const auto node = cluster.find(name);
    if (node == cluster.end()) {
      result.refused.push_back({name, std::string(kNoCardThere), true});
    } else if (is_reserved_for(*node->second, owner, parts)) {
      result.nodes.push_back({name, kReservedScore});
    } else if (NodeAnswer answer = answer_of_node(*node->second, owner, parts, policy, priority); answer.fits) {
      result.nodes.push_back({name, answer.score});
    } else {
      result.refused.push_back({name, std::move(answer.why), answer.final});
    }
  }
  return result;
}

Fit fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
        const std::vector<std::string>& names, const PolicyRow& policy, std::int32_t priority) {
  return fit(cluster, owner, parts, names, PodPolicy(policy), priority);
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
