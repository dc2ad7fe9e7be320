#include "app/control/extender.h"

#include <algorithm>
#include <cstdint>

#include "app/control/live_placement.h"
#include "codec/extender/extender.h"

namespace carve::control {
namespace {

constexpr std::int64_t kMost = 10;     // extender scores go from 0 to 10
constexpr std::int64_t kCrowded = -1;  // below every score of a node that fits

}  // namespace

Result<std::unique_ptr<Extender::Asked>> Extender::ask(std::string_view call) const {
  auto asked = std::make_unique<Asked>();
  CARVE_TRY(asked->args, codec::parse_extender_args(call));
  CARVE_TRY(asked->parts, codec::requests_of(asked->args.pod, settings_));
  if (asked->parts.empty()) {
    for (const auto& name : asked->args.names) asked->fit.nodes.push_back({name, 0});
    return asked;
  }
  asked->owner = {OwnerKind::kPod, asked->args.pod.uid};
  asked->rules = rules_();
  asked->cluster = snapshot_();
  asked->policy = policy_of(*asked->rules, asked->args.pod);
  const std::lock_guard lock(mutex_);
  asked->fit = cache_.fit(asked->cluster, {asked->owner, asked->parts, asked->args.names, asked->rules,
                                           *asked->policy, asked->args.priority});
  return asked;
}

std::optional<std::vector<Slice>> Extender::placed_on(const Asked& asked, const NodeState& state) const {
  auto placed = place_pod(*SeenLedger(state, asked.owner, asked.args.priority), state.links, asked.owner, asked.parts,
                          *asked.policy->on(state.labels).card);
  if (!placed) return std::nullopt;
  return std::move(*placed);
}

std::vector<Slice> Extender::take_expected(const Owner& owner, const std::string& node) const {
  const std::lock_guard lock(mutex_);
  return expected_.take(owner, node);
}

const FittingView* Extender::choose_ahead(Asked& asked) const {
  const auto now = clock_->now();
  const std::lock_guard lock(mutex_);
  expected_.expire(now);
  for (auto& node : asked.fit.nodes) {
    const NodeState& state = *asked.cluster->find(node.node)->second;
    if (is_reserved_for(state, asked.owner)) continue;
    const auto ahead = expected_.ahead(node.node, state, asked.owner);
    if (!ahead) continue;
    const NodeWord word = word_of_node(*ahead, asked.owner, asked.parts, *asked.policy, asked.args.priority);
    node.score = word.fits ? word.score : kCrowded;
  }
  const FittingView* best = choose_node(asked.fit.nodes);
  expected_.forget(asked.owner);
  if (best == nullptr || best->score == kCrowded) return best;
  const NodeState& state = *asked.cluster->find(best->node)->second;
  if (is_reserved_for(state, asked.owner)) return best;
  const auto ahead = expected_.ahead(best->node, state, asked.owner);
  if (auto placed = placed_on(asked, ahead ? *ahead : state))
    expected_.expect(asked.owner, std::string(best->node), std::move(*placed), now);
  return best;
}

std::string Extender::filter(std::string_view call) const {
  codec::FilterAnswer answer;
  const auto found = ask(call);
  if (!found) {
    answer.error = found.error().what;
    return codec::to_json(answer, {});
  }
  const Asked& asked = **found;
  if (watcher_) watcher_({OwnerKind::kPod, asked.args.pod.uid}, asked.fit);
  answer.names.reserve(asked.fit.nodes.size());
  for (const auto& node : asked.fit.nodes) answer.names.push_back(node.node);
  for (const auto& node : asked.fit.refused)
    (node.final ? answer.hopeless : answer.failed).emplace_back(node.node, *node.why);
  return codec::to_json(answer, asked.args);
}

std::string Extender::prioritize(std::string_view call) const {
  std::vector<codec::HostScore> scores;
  const auto asked = ask(call);
  if (!asked || (*asked)->parts.empty()) return codec::to_json(scores);
  const auto& nodes = (*asked)->fit.nodes;
  const FittingView* best = clock_ == nullptr ? choose_node(nodes) : choose_ahead(**asked);
  scores.reserve(nodes.size());
  const auto worst = std::min_element(
      nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.score < b.score; });
  for (const auto& node : nodes) {
    std::int64_t score = kMost;
    if (&node != best) {
      const auto span = best->score - worst->score;
      score = span == 0
                  ? kMost - 1
                  : static_cast<std::int64_t>(static_cast<__int128>(node.score - worst->score) *
                                              (kMost - 1) / span);
    }
    scores.push_back({node.node, score});
  }
  return codec::to_json(scores);
}

std::string Extender::preempt(std::string_view call) const {
  auto args = codec::parse_preemption_args(call);
  if (!args) return codec::preemption_result({});
  const auto parts = codec::requests_of(args->pod, settings_);
  if (!parts) return codec::preemption_result({});
  if (parts->empty()) return codec::preemption_result(args->nodes);
  const Owner owner{OwnerKind::kPod, args->pod.uid};
  const auto cluster = snapshot_();
  const auto rules = rules_();
  const auto policy = policy_of(*rules, args->pod);
  std::erase_if(args->nodes, [&](const auto& proposed) {
    const auto node = cluster->find(proposed.first);
    if (node == cluster->end()) return true;
    const NodeState& state = *node->second;
    if (is_reserved_for(state, owner)) return false;
    Ledger rest = *SeenLedger(state, owner, args->priority);
    for (const auto& uid : proposed.second.uids) rest.remove_owner({OwnerKind::kPod, uid});
    return !place_pod(rest, state.links, owner, *parts, *policy.on(state.labels).card).has_value();
  });
  return codec::preemption_result(args->nodes);
}

}  // namespace carve::control
