#include "app/control/api/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/control/state/policy_watcher.h"
#include "codec/placement/placement_text.h"
#include "codec/record.h"
#include "core/cluster/ranking.h"
#include "core/cluster/ruled_fit.h"

namespace carve::control {
namespace {

/// The cluster without the owner's slices on that node.
ClusterState without(const ClusterState& cluster, const Owner& owner, const std::string& node) {
  ClusterState rest = cluster;
  if (const auto found = rest.find(node); found != rest.end()) {
    auto state = std::make_shared<NodeState>(*found->second);
    state->ledger.remove_owner(owner);
    std::erase(state->reserved, owner);
    rest.put(node, std::move(state));
  }
  return rest;
}

std::string state_of(const codec::ClusterPod& pod) {
  if (pod.ended) return "has ended";
  if (!pod.node.empty()) return "is on " + pod.node;
  if (pod.gated) return "is not ready for scheduling (spec.schedulingGates)";
  return "waits, not bound to a node";
}

constexpr std::size_t kRanked = 5;

/// Judges by the pod's priority, as filter does: nominated reservations of other pods count depending on it.
void judge(const ClusterState& cluster, const Owner& owner, std::int32_t priority, const PodPolicy& policy,
           const WithinQuotas& within, codec::Explanation* explanation) {
  std::vector<std::string> names;
  for (const auto& [name, state] : cluster) names.push_back(name);
  const auto asks = explanation->asks;
  explanation->asks = within(asks);
  auto found = fit(cluster, owner, explanation->asks, names, policy, priority);
  std::sort(found.nodes.begin(), found.nodes.end(), [](const FittingNode& a, const FittingNode& b) {
    return a.score != b.score ? a.score > b.score : a.node < b.node;
  });
  for (const auto& node : found.nodes) explanation->fits.push_back(node.node);
  explanation->ranked =
      ranking(cluster, owner, explanation->asks, found.nodes, policy, explanation->namespace_name, kRanked, priority);
  explanation->nodes = names.size();
  explanation->refused = grouped(found.refused);
  explanation->final =
      std::all_of(found.refused.begin(), found.refused.end(), [](const RefusedNode& n) { return n.final; });
  if (explanation->fits.empty())
    explanation->smaller = what_would_fit(cluster, owner, asks, names, policy, priority, within);
}

}  // namespace

codec::Explanation explain(const codec::ClusterPod& pod, const PodRequests& requests,
                           const ClusterModel& model, const PlacementRules& rules) {
  codec::Explanation explanation;
  explanation.namespace_name = pod.ask.namespace_name;
  explanation.name = pod.ask.name;
  explanation.node = pod.node;
  explanation.state = state_of(pod);
  explanation.ended = pod.ended;
  if (!pod.record.empty()) {
    auto record = codec::decode_record(pod.record);
    if (record) {
      explanation.holds = std::move(record->parts);
      explanation.epoch = record->epoch;
    } else {
      explanation.wrong = "its record is invalid: " + record.error().what;
    }
  }
  // A pod without slots belongs to another system, but its resource names are explained.
  auto parts = requests.uses_claims(pod.ask) ? requests.of(pod.ask)
                                             : codec::requests_of(pod.ask, requests.settings());
  if (!parts) {
    explanation.wrong = parts.error().what;
    return explanation;
  }
  if (!parts->empty() && !codec::carries_slots(pod.ask)) {
    explanation.wrong = fmt::format(
        "it has no {}: Carve's admission did not review it (an excluded namespace, or a pod that is older than Carve), "
        "so carve-control assigns it no cards",
        codec::kSlots);
    return explanation;
  }
  explanation.asks = std::move(*parts);
  if (explanation.asks.empty() || pod.ended) return explanation;
  const Owner owner{OwnerKind::kPod, pod.ask.uid};
  if (const auto preference = codec::placement_of(pod.ask); !preference) explanation.wrong = preference.error().what;
  const auto policy = policy_of(rules, pod.ask);
  const auto within = [&](std::vector<PartRequest> asks) {
    return model.within_quota(pod.ask.namespace_name, owner, std::move(asks));
  };
  judge(without(*model.snapshot(), owner, pod.node), owner, pod.priority, policy, within, &explanation);
  explanation.policy = explanation.ranked.empty() ? to_human(policy.on({}), explanation.namespace_name)
                                                  : explanation.ranked.front().policies;
  return explanation;
}

}  // namespace carve::control
