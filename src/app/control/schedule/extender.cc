#include "app/control/schedule/extender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "app/control/state/policy_watcher.h"
#include "codec/extender/extender.h"

namespace carve::control {
namespace {

constexpr std::int64_t kMost = 10;     // extender scores range from 0 to 10
constexpr std::int64_t kCrowded = -1;  // below every score of a node that fits

}  // namespace

Result<std::unique_ptr<Extender::Asked>> Extender::ask(std::string_view call, bool to_place) const {
  auto asked = std::make_unique<Asked>();
  CARVE_TRY(asked->args, codec::parse_extender_args(call));
  const bool takes = to_place && requests_.uses_claims(asked->args.pod);
  CARVE_TRY(asked->parts, takes ? requests_.take(asked->args.pod) : requests_.of(asked->args.pod));
  if (takes && claims_taken_) claims_taken_();
  if (asked->parts.empty()) {
    for (const auto name : asked->args.names) asked->fit.nodes.push_back({name, 0});
    return asked;
  }
  asked->owner = {OwnerKind::kPod, asked->args.pod.uid};
  if (within_quota_)
    asked->parts = within_quota_(asked->args.pod.namespace_name, asked->owner, std::move(asked->parts));
  asked->rules = rules_();
  asked->cluster = snapshot_();
  asked->policy = policy_of(*asked->rules, asked->args.pod);
  const MutexLock lock(mutex_);
  asked->fit = cache_.fit(asked->cluster, ask_of(*asked));
  return asked;
}

FitCache::Ask Extender::ask_of(const Asked& asked) {
  return {asked.owner, asked.parts, asked.args.names, asked.rules, *asked.policy, asked.args.priority};
}

std::optional<std::vector<Slice>> Extender::placed_on(const Asked& asked, const NodeState& state) const {
  auto placed = place_pod(*SeenLedger(state, asked.owner, asked.args.priority), state.links, asked.owner, asked.parts,
                          *asked.policy->on(state.labels).card);
  if (!placed) return std::nullopt;
  return std::move(*placed);
}

std::vector<Slice> Extender::sent_for(const Owner& owner, const std::string& node) const {
  const MutexLock lock(mutex_);
  auto slices = assumed_.sent_for(owner, node);
  if (clock_ != nullptr) assumed_.binding_begins(owner, clock_->now());
  return slices;
}

std::string Extender::why_sent(const Owner& owner, const std::string& node) const {
  const MutexLock lock(mutex_);
  return assumed_.why_sent(owner, node);
}

std::string Extender::why_there(const Asked& asked, const NodeState& there) {
  const auto by = asked.policy->on(there.labels);
  const auto fitting = asked.fit.nodes.size();
  return fmt::format("chosen by node:{},card:{} among {} of {} {} that kube-scheduler named", by.node->name,
                     by.card->name, fitting, fitting + asked.fit.refused.size(),
                     fitting + asked.fit.refused.size() == 1 ? "node" : "nodes");
}

/// Only a few of many nodes have assumed pods, so only these nodes are looked up among those that fit.
void Extender::look_ahead(Asked& asked) const {
  std::vector<ClusterState::Number> busy;
  for (const auto name : assumed_.nodes()) {
    if (const auto number = asked.cluster->number_of(name)) busy.push_back(*number);
  }
  if (busy.empty()) return;
  std::vector<FittingView*> fitting(asked.cluster->size());
  for (auto& node : asked.fit.nodes) fitting[node.number] = &node;
  const auto ask = ask_of(asked);
  for (const auto number : busy) {
    FittingView* node = fitting[number];
    if (node == nullptr || is_reserved_for(**node->state, asked.owner, asked.parts)) continue;
    const auto ahead = assumed_.ahead(asked.cluster->name(number), *node->state, asked.owner);
    if (ahead) node->score = cache_.score_ahead(asked.cluster, number, ahead, ask).value_or(kCrowded);
  }
}

const FittingView* Extender::choose_ahead(Asked& asked) const {
  const auto now = clock_->now();
  const MutexLock lock(mutex_);
  assumed_.expire(now);
  look_ahead(asked);
  const FittingView* best = choose_node(asked.fit.nodes);
  assumed_.forget(asked.owner);
  if (best == nullptr || best->score == kCrowded) return best;
  const auto& state = *best->state;
  if (is_reserved_for(*state, asked.owner, asked.parts)) return best;
  const auto ahead = assumed_.ahead(best->node, state, asked.owner);
  if (auto placed = placed_on(asked, ahead ? *ahead : *state))
    assumed_.expect(asked.owner, std::string(best->node), std::move(*placed), now, why_there(asked, *state));
  return best;
}

const FittingView* Extender::best_of(Asked& asked) const {
  return clock_ == nullptr ? choose_node(asked.fit.nodes) : choose_ahead(asked);
}

std::optional<Extender::Sent> Extender::choose_anywhere(const PodEntry& pod,
                                                        const std::set<std::string>& excluded) const {
  Asked asked;
  asked.owner = pod.owner();
  asked.parts = within_quota_ ? within_quota_(pod.object.ask.namespace_name, asked.owner, pod.parts) : pod.parts;
  asked.args.priority = pod.object.priority;
  asked.rules = rules_();
  asked.cluster = snapshot_();
  asked.policy = policy_of(*asked.rules, pod.object.ask);
  for (ClusterState::Number at = 0; at < asked.cluster->size(); ++at) {
    if (!excluded.contains(asked.cluster->name(at))) asked.args.names.push_back(asked.cluster->name(at));
  }
  {
    const MutexLock lock(mutex_);
    asked.fit = cache_.fit(asked.cluster, ask_of(asked));
  }
  const FittingView* best = best_of(asked);
  if (best == nullptr || best->score == kCrowded) return std::nullopt;
  Sent sent{std::string(best->node), {}};
  const MutexLock lock(mutex_);
  sent.slices = assumed_.sent_for(asked.owner, sent.node);
  return sent;
}

std::string Extender::filter(std::string_view call) const { return nodes_for(call, Answer::kAll); }

std::string Extender::filter_to_place(std::string_view call) const { return nodes_for(call, Answer::kAllToPlace); }

std::string Extender::choose(std::string_view call) const { return nodes_for(call, Answer::kOne); }

std::string Extender::nodes_for(std::string_view call, Answer wanted) const {
  codec::FilterAnswer answer;
  const auto found = ask(call, wanted != Answer::kAll);
  if (!found) {
    answer.error = found.error().what;
    return codec::to_json(answer, {});
  }
  Asked& asked = **found;
  if (watcher_ && wanted != Answer::kAll) watcher_({OwnerKind::kPod, asked.args.pod.uid}, asked.fit);
  const bool decided = wanted == Answer::kOne || (wanted == Answer::kAllToPlace && asked.fit.nodes.size() == 1);
  if (decided && !asked.parts.empty()) {
    // best_of() also assumes the pod on that node.
    if (const FittingView* best = best_of(asked); best != nullptr) {
      if (wanted == Answer::kOne) {
        answer.names.push_back(best->node);
        return codec::to_json(answer, asked.args);
      }
    }
  }
  answer.names.reserve(asked.fit.nodes.size());
  for (const auto& node : asked.fit.nodes) answer.names.push_back(node.node);
  const bool many = wanted != Answer::kAll && asked.fit.refused.size() >= kMany;
  for (const auto& node : asked.fit.refused) {
    const bool hopeless = node.final || (wanted != Answer::kAll && node.node != asked.args.nominated);
    const std::string_view why = many ? kUnschedulableTexts[static_cast<std::size_t>(node.class_of_why)] : *node.why;
    (hopeless ? answer.hopeless : answer.failed).emplace_back(node.node, why);
  }
  return codec::to_json(answer, asked.args);
}

std::string Extender::prioritize(std::string_view call) const { return scores_for(call, true); }

std::string Extender::rank(std::string_view call) const { return scores_for(call, false); }

std::string Extender::scores_for(std::string_view call, bool to_place) const {
  std::vector<codec::HostScore> scores;
  const auto asked = ask(call, to_place);
  if (!asked || (*asked)->parts.empty()) return codec::to_json(scores);
  const auto& nodes = (*asked)->fit.nodes;
  const FittingView* best = to_place ? best_of(**asked) : choose_node(nodes);
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

}  // namespace carve::control
