#include "app/control/preempt/preempt_verb.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "app/control/state/policy_watcher.h"
#include "app/control/preempt/preemption_candidates.h"
#include "codec/extender/extender.h"
#include "core/cluster/proposal.h"

namespace carve::control {
namespace {

using Nodes = std::map<std::string, codec::PreemptionArgs::Victims>;

/// If room is already being made for the pod on a node, keeps only that node.
void keep_where_room_is_made(const ClusterState& cluster, const Owner& owner, Nodes* nodes) {
  for (const auto& one : cluster) {
    const auto& name = one.first;
    const auto& state = one.second;
    const bool here = std::any_of(state->reservations.begin(), state->reservations.end(),
                                  [&](const NominatedReservation& reservation) { return reservation.owner == owner; });
    if (!here) continue;
    std::erase_if(*nodes, [&](const auto& proposed) { return proposed.first != name; });
    return;
  }
}

std::vector<Owner> owners_of(const codec::PreemptionArgs::Victims& victims) {
  std::vector<Owner> owners;
  for (const auto& uid : victims.uids) owners.push_back({OwnerKind::kPod, uid});
  return owners;
}

}  // namespace

std::string PreemptVerb::refuse(const Error& error) const {
  world_.log.warn("kube-scheduler evicts no pod: its preempt call cannot be parsed", {{"error", error.what}});
  return codec::preemption_result({});
}

std::string PreemptVerb::answer(std::string_view call) const {
  auto args = codec::parse_preemption_args(call);
  if (!args) return refuse(args.error());
  const auto parts = PodRequests(world_.settings, world_.claims).of(args->pod);
  if (!parts) return refuse(fail_in("pod " + args->pod.namespace_name + "/" + args->pod.name, parts.error()).value());
  if (parts->empty()) return codec::preemption_result(args->nodes);
  const Owner owner{OwnerKind::kPod, args->pod.uid};
  const auto within = world_.model.within_quota(args->pod.namespace_name, owner, *parts);
  const auto cluster = world_.model.snapshot();
  const auto rules = world_.rules();
  const auto policy = policy_of(*rules, args->pod);
  keep_where_room_is_made(*cluster, owner, &args->nodes);
  const auto ask = [&](const std::string& name, const Nodes::mapped_type& victims,
                       const PreemptionCandidates& candidates) {
    const auto node = cluster->find(name);
    if (node == cluster->end()) return ProposalAnswer{};
    return correct_proposal(*node->second, name, owner, within, args->priority, *policy.on(node->second->labels).card,
                            owners_of(victims), candidates);
  };
  const auto candidates = preemption_candidates_of(world_.model, {});
  std::optional<PreemptionCandidates> with_budgets;
  for (auto at = args->nodes.begin(); at != args->nodes.end();) {
    auto& [name, victims] = *at;
    auto answer = ask(name, victims, candidates);
    if (answer.verdict == ProposalVerdict::kOtherVictims && !with_budgets) {
      const auto budgets = world_.budgets();
      if (!budgets) {
        world_.log.warn("no pod is evicted for cards: the PodDisruptionBudgets cannot be read",
                        {{"error", budgets.error().what}});
      }
      // Without the budgets no pod may be evicted.
      with_budgets = budgets ? preemption_candidates_of(world_.model, *budgets)
                             : preemption_candidates_of(world_.model, {}, [](const Owner&) { return true; });
    }
    if (answer.verdict == ProposalVerdict::kOtherVictims) answer = ask(name, victims, *with_budgets);
    if (answer.verdict == ProposalVerdict::kOtherVictims) {
      victims = {};
      for (const Owner& victim : answer.victims) victims.uids.push_back(victim.uid);
    }
    at = answer.verdict == ProposalVerdict::kHopeless ? args->nodes.erase(at) : std::next(at);
  }
  if (!args->nodes.empty() && world_.on_preempt) world_.on_preempt(owner);
  return codec::preemption_result(args->nodes);
}

}  // namespace carve::control
