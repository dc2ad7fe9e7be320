// FitCache over random histories of a cluster: regardless of the earlier queries, its answer equals that of fit().
#include "core/cluster/fit_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>

namespace carve {
namespace {

template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(100, rc::gen::inRange<T>(low, high + 1));
}

std::string node_name() { return "n" + std::to_string(pick(0, 7)); }

std::shared_ptr<NodeState> fresh_node(const std::string& name) {
  auto state = std::make_shared<NodeState>();
  state->labels = {{"tier", pick(0, 1) == 0 ? "a" : "b"}};
  const int cards = pick(1, 3);
  for (int i = 0; i < cards; ++i) {
    Card card;
    card.id = CardId("GPU-" + name + "-" + std::to_string(i));
    card.model = "NVIDIA T4";
    card.memory = Bytes::gib(16);
    RC_ASSERT(state->ledger.put_card(card).has_value());
  }
  return state;
}

/// One random change of the cluster; the snapshot before it does not change.
std::shared_ptr<const ClusterState> after_a_change(const ClusterState& before, int step) {
  auto next = std::make_shared<ClusterState>(before);
  const std::string name = node_name();
  const auto found = next->find(name);
  if (found == next->end() || pick(0, 9) == 0) {
    next->put(name, fresh_node(name));
    return next;
  }
  if (pick(0, 9) == 0) {
    next->erase(name);
    return next;
  }
  auto state = std::make_shared<NodeState>(*found->second);
  const CardState& card = state->ledger.cards()[pick<std::size_t>(0, state->ledger.cards().size() - 1)];
  switch (pick(0, 5)) {
    case 0:
      (void)state->ledger.set_health(card.card.id, {!card.card.health.ok, "flips"});
      break;
    case 1:
      if (!card.slices.empty()) state->ledger.remove_owner(Owner(card.slices.front().owner));
      break;
    case 2:
      state->reserved = {{OwnerKind::kPod, "p" + std::to_string(pick(0, 2))}};
      break;
    case 5:
      if (state->closed_to.empty())
        state->closed_to = {{"gpushare", "its name is another's"}};
      else
        state->closed_to.clear();
      break;
    case 3:
      state->reservations = {
          NominatedReservation{{OwnerKind::kPod, "p" + std::to_string(pick(0, 2))}, pick(0, 2), {}, {}}};
      state->reservations.front().slices = {
          Slice{state->reservations.front().owner, "c", card.card.id, Bytes::gib(6), CoreShare(10)}};
      break;
    default:
      (void)state->ledger.add({Slice{{OwnerKind::kPod, "held" + std::to_string(step)}, "c", card.card.id,
                                     Bytes::gib(pick<std::uint64_t>(1, 9)), CoreShare(pick(1U, 60U))}});
  }
  next->put(name, std::move(state));
  return next;
}

std::vector<PartRequest> some_request() {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(pick<std::uint64_t>(1, 6)));
  request.compute = CoreShare(10 * pick(1U, 3U));
  if (pick(0, 2) == 0) request.dialect = "gpushare";
  std::vector<PartRequest> parts = {{"c", Phase::kRun, request, {}}};
  if (pick(0, 3) == 0) parts.front().request = whole_cards(pick(1U, 2U));
  if (pick(0, 3) == 0) parts.push_back({"d", Phase::kInit, request, {}});
  return parts;
}

std::shared_ptr<const PlacementRules> some_rules() {
  const PolicyRow* row = &kPolicies[pick<std::size_t>(0, kPolicies.size() - 1)];
  const NodePolicyRow* node = &kNodePolicies[pick<std::size_t>(0, kNodePolicies.size() - 1)];
  auto rules = std::make_shared<PlacementRules>();
  if (pick(0, 1) == 0) rules->cluster = {node, nullptr};
  if (pick(0, 1) == 0) rules->pools.push_back({"a", {{"tier", "a"}}, {nullptr, row}});
  if (pick(0, 1) == 0) rules->namespaces["dev"] = {node, row};
  return rules;
}

RC_GTEST_PROP(FitCacheHistory, TheAnswerEqualsFitRegardlessOfEarlierQueries, ()) {
  std::shared_ptr<const ClusterState> now = std::make_shared<const ClusterState>();
  std::shared_ptr<const ClusterState> earlier = now;
  std::shared_ptr<const PlacementRules> rules = some_rules();
  FitCache cache;
  for (int step = 0; step < 60; ++step) {
    if (pick(0, 3) == 0) earlier = now;
    now = after_a_change(*now, step);
    if (pick(0, 9) == 0) rules = some_rules();
    const auto& cluster = pick(0, 5) == 0 ? earlier : now;  // a snapshot that a caller still holds
    std::vector<std::string> names;
    for (int i = pick(0, 9); i > 0; --i) names.push_back(node_name());
    const Owner owner{OwnerKind::kPod, "p" + std::to_string(pick(0, 2))};
    const auto parts = some_request();
    const PolicyChoice own{pick(0, 4) == 0 ? &kNodePolicies[1] : nullptr, nullptr};
    const PodPolicy policy(*rules, pick(0, 1) == 0 ? "dev" : "prod", own);
    const std::int32_t priority = pick(0, 3);
    const std::vector<std::string_view> views(names.begin(), names.end());
    const FitView said = cache.fit(cluster, {owner, parts, views, rules, policy, priority});
    const Fit right = fit(*cluster, owner, parts, names, policy, priority);
    RC_ASSERT(said.nodes.size() == right.nodes.size());
    RC_ASSERT(said.refused.size() == right.refused.size());
    for (std::size_t i = 0; i < right.nodes.size(); ++i) {
      RC_ASSERT(std::string(said.nodes[i].node) == right.nodes[i].node);
      RC_ASSERT(said.nodes[i].score == right.nodes[i].score);
    }
    // The future state of a node, along with its current state: the answers must not be confused.
    for (const FittingView& node : said.nodes) {
      if (pick(0, 3) != 0) continue;
      auto ahead = std::make_shared<NodeState>(**node.state);
      (void)ahead->ledger.add({Slice{{OwnerKind::kPod, "ahead"}, "c", ahead->ledger.cards().front().card.id,
                                     Bytes::gib(pick<std::uint64_t>(1, 16)), CoreShare(pick(1U, 60U))}});
      const FitCache::Ask ask{owner, parts, views, rules, policy, priority};
      const NodeAnswer answer = answer_of_node(*ahead, owner, parts, policy, priority);
      for (int again = pick(1, 2); again > 0; --again)
        RC_ASSERT(cache.score_ahead(cluster, node.number, ahead, ask) ==
                  (answer.fits ? std::optional(answer.score) : std::nullopt));
    }
    const auto* chosen = choose_node(said.nodes);
    const auto* rightly = choose_node(right.nodes);
    RC_ASSERT((chosen == nullptr) == (rightly == nullptr));
    if (chosen != nullptr) RC_ASSERT(std::string(chosen->node) == rightly->node);
    for (std::size_t i = 0; i < right.refused.size(); ++i) {
      RC_ASSERT(std::string(said.refused[i].node) == right.refused[i].node);
      RC_ASSERT(*said.refused[i].why == right.refused[i].why);
      RC_ASSERT(said.refused[i].final == right.refused[i].final);
    }
  }
  RC_TAG(cache.figures().remembered > cache.figures().asked / 4 ? "often remembered" : "seldom");
}

TEST(FitCache, OnlyChangedNodesAreEvaluatedAgain) {
  auto cluster = std::make_shared<ClusterState>();
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back("n" + std::to_string(i));
    auto state = std::make_shared<NodeState>();
    Card card;
    card.id = CardId("GPU-" + std::to_string(i));
    card.memory = Bytes::gib(16);
    ASSERT_TRUE(state->ledger.put_card(card));
    cluster->put(names.back(), std::move(state));
  }
  const auto rules = std::make_shared<const PlacementRules>();
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(1));
  request.compute = CoreShare(1);
  const std::vector<PartRequest> parts = {{"c", Phase::kRun, request, {}}};
  const PodPolicy policy(*rules, "s", {});
  const std::vector<std::string_view> views(names.begin(), names.end());
  FitCache cache;
  for (int pod = 0; pod < 5; ++pod) {
    const Owner owner{OwnerKind::kPod, std::to_string(pod)};
    EXPECT_EQ(cache.fit(cluster, {owner, parts, views, rules, policy, 0}).nodes.size(), 100U);
    auto next = std::make_shared<ClusterState>(*cluster);
    next->put("n7", std::make_shared<NodeState>(*next->at("n7")));
    cluster = next;
  }
  EXPECT_EQ(cache.figures().asked, 104U) << "all nodes once, then the changed node four times";
  EXPECT_EQ(cache.figures().remembered, 396U);
  const auto ahead = std::make_shared<const NodeState>(*cluster->at("n7"));
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(cache.score_ahead(cluster, 7, ahead, {{OwnerKind::kPod, "5"}, parts, views, rules, policy, 0}));
  }
  EXPECT_EQ(cache.figures().remembered, 397U);
}

/// Where a reservation exists, the answer depends on the owner and its priority, so no answer is cached.
TEST(FitCache, ANodeWithAReservationIsEvaluatedForEveryPod) {
  const Owner held{OwnerKind::kPod, "held"};
  auto state = std::make_shared<NodeState>();
  Card card;
  card.id = CardId("GPU-0");
  card.memory = Bytes::gib(16);
  ASSERT_TRUE(state->ledger.put_card(card));
  state->reservations = {NominatedReservation{held, 5, {Slice{held, "c", card.id, Bytes::gib(10), CoreShare(1)}}, {}}};
  const auto cluster = std::make_shared<ClusterState>();
  cluster->put("n", state);
  const auto rules = std::make_shared<const PlacementRules>();
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(8));
  request.compute = CoreShare(1);
  const std::vector<PartRequest> parts = {{"c", Phase::kRun, request, {}}};
  const PodPolicy policy(*rules, "s", {});
  const std::vector<std::string_view> names = {"n"};
  const Owner other{OwnerKind::kPod, "other"};
  const auto ahead = std::make_shared<const NodeState>(*state);
  FitCache cache;
  for (const auto& [owner, priority, fits] :
       {std::tuple{&other, 5, false}, std::tuple{&other, 6, true}, std::tuple{&held, 0, true},
        std::tuple{&other, 0, false}}) {
    const FitCache::Ask ask{*owner, parts, names, rules, policy, priority};
    EXPECT_EQ(cache.fit(cluster, ask).nodes.size(), fits ? 1U : 0U) << priority;
    EXPECT_EQ(cache.score_ahead(cluster, 0, ahead, ask).has_value(), fits) << priority;
  }
  EXPECT_EQ(cache.figures().remembered, 0U);
}

}  // namespace
}  // namespace carve
