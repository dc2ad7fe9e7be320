#include "core/policy/rules.h"

#include <gtest/gtest.h>

#include "core/cluster/ranking.h"
#include "core/cluster/ruled_fit.h"

namespace carve {
namespace {

const PolicyRow* const kPack = &kPolicies[0];
const PolicyRow* const kSpread = &kPolicies[1];
const NodePolicyRow* const kPackNode = &kNodePolicies[0];
const NodePolicyRow* const kSpreadNode = &kNodePolicies[1];

std::string names(const PodPolicy& policy, const NodeLabels& labels) {
  const Policies rows = policy.on(labels);
  return std::string(rows.node->name) + "/" + std::string(rows.card->name);
}

TEST(PlacementRules, TheFirstRowAppliesWhereNoScopeSetsAPolicy) {
  const PlacementRules none;
  EXPECT_EQ(names(PodPolicy(none, "default", {}), {}), "binpack/binpack");
  EXPECT_EQ(to_human(PodPolicy(none, "default", {}).on({}), "default"),
            "nodes by binpack (built in), cards by binpack (built in)");
}

TEST(PlacementRules, TheMostSpecificScopeAppliesForEachRankingSeparately) {
  const PlacementRules rules{
      {kSpreadNode, kSpread},
      {{"a", {{"tier", "a"}}, {kPackNode, nullptr}}, {"all", {}, {nullptr, kPack}}},
      {{"dev", {nullptr, kSpread}}}};
  const NodeLabels in_a = {{"tier", "a"}, {"zone", "1"}};
  EXPECT_EQ(names(PodPolicy(rules, "other", {}), in_a), "binpack/spread")
      << "pool a, then the cluster";
  EXPECT_EQ(names(PodPolicy(rules, "other", {}), {{"tier", "b"}}), "spread/binpack")
      << "the second pool selects the rest";
  EXPECT_EQ(names(PodPolicy(rules, "dev", {}), {{"tier", "b"}}), "spread/spread")
      << "the namespace before the pool";
  EXPECT_EQ(names(PodPolicy(rules, "dev", {kPackNode, kPack}), {}), "binpack/binpack")
      << "the pod overrides all other scopes";
  EXPECT_EQ(to_human(PodPolicy(rules, "dev", {}).on(in_a), "dev"),
            "nodes by binpack (pool a), cards by spread (namespace dev)");
}

TEST(PlacementRules, APoolSelectsNodesWithAllOfItsLabels) {
  const PlacementRules rules{{}, {{"a", {{"tier", "a"}, {"zone", "1"}}, {kSpreadNode, kSpread}}}, {}};
  const PodPolicy policy(rules, "default", {});
  EXPECT_EQ(names(policy, {{"tier", "a"}, {"zone", "1"}, {"more", ""}}), "spread/spread");
  EXPECT_EQ(names(policy, {{"tier", "a"}}), "binpack/binpack");
  EXPECT_EQ(names(policy, {{"tier", "a"}, {"zone", "2"}}), "binpack/binpack");
}

/// Nodes of two cards of 100 GiB each. The numbers are what is held of them, in GiB and the same in hundredths of
/// compute.
std::shared_ptr<const NodeState> node(const std::string& name, std::uint64_t first,
                                      std::uint64_t second, NodeLabels labels = {}) {
  auto state = std::make_shared<NodeState>();
  state->labels = std::move(labels);
  const std::uint64_t held[] = {first, second};
  for (int i = 0; i < 2; ++i) {
    Card card;
    card.id = CardId("GPU-" + name + std::to_string(i));
    card.memory = Bytes::gib(100);
    EXPECT_TRUE(state->ledger.put_card(card));
    if (held[i] == 0) continue;
    const CoreShare compute(static_cast<std::uint32_t>(held[i]));
    EXPECT_TRUE(state->ledger.add({Slice{
        {OwnerKind::kPod, "o" + std::to_string(i)}, "c", card.id, Bytes::gib(held[i]), compute}}));
  }
  return state;
}

std::vector<PartRequest> asks(std::uint64_t gib) {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.compute = CoreShare(static_cast<std::uint32_t>(gib));
  return {{"c", Phase::kRun, request}};
}

std::string chosen(const ClusterState& cluster, const PodPolicy& policy,
                   std::vector<PartRequest> parts = asks(10)) {
  std::vector<std::string> all;
  for (const auto& [name, state] : cluster) all.push_back(name);
  const Owner owner{OwnerKind::kPod, "p"};
  const Fit found = fit(cluster, owner, parts, all, policy);
  const FittingNode* best = choose_node(found.nodes);
  if (best == nullptr) return "none";
  const NodeState& state = *cluster.at(best->node);
  const auto placed =
      place_pod(state.ledger, state.links, owner, parts, *policy.on(state.labels).card);
  return placed->front().card.str();
}

PodPolicy both(const PlacementRules& rules) { return {rules, "default", {}}; }

TEST(PlacementRules, NodesAndCardsAreRankedEachByItsOwnPolicy) {
  // a: one full card and one idle; b: both half full; c: nearly idle.
  const ClusterState cluster = {
      {"a", node("a", 100, 0)}, {"b", node("b", 50, 40)}, {"c", node("c", 5, 0)}};
  EXPECT_EQ(chosen(cluster, PodPolicy(*kPack)), "GPU-b0") << "the fullest card that has room";
  EXPECT_EQ(chosen(cluster, PodPolicy(*kSpread)), "GPU-c1") << "the emptiest node, its emptiest card";
  EXPECT_EQ(chosen(cluster, both({{kSpreadNode, kPack}, {}, {}})), "GPU-c0")
      << "the emptiest node, its fuller card";
  EXPECT_EQ(chosen(cluster, both({{kPackNode, kSpread}, {}, {}})), "GPU-b1")
      << "the node with the fullest card, but its emptier card";
}

TEST(PlacementRules, BinpackPrefersTheFullerNodeBetweenEqualCards) {
  const ClusterState cluster = {{"a", node("a", 0, 0)}, {"b", node("b", 100, 0)}};
  auto whole = asks(1);
  whole.front().request = whole_cards(1);
  EXPECT_EQ(chosen(cluster, PodPolicy(*kPack), whole), "GPU-b1") << "node a stays free";
  EXPECT_EQ(chosen(cluster, PodPolicy(*kSpread), whole), "GPU-a0");
}

TEST(PlacementRules, NodesOfPoolsWithDifferentPoliciesAreComparedOnOneScale) {
  // Each node is scored by its own policy: b is nearly full, as its pool prefers; a is half empty.
  const ClusterState cluster = {{"a", node("a", 50, 50, {{"pool", "spread"}})},
                                {"b", node("b", 85, 85)}};
  const PlacementRules rules{{}, {{"s", {{"pool", "spread"}}, {kSpreadNode, kSpread}}}, {}};
  EXPECT_EQ(chosen(cluster, both(rules)), "GPU-b0");
  for (const NodePolicyRow& row : kNodePolicies) {
    EXPECT_GE(row.score({kAllLeft, kAllLeft, 5000}), 0);
    EXPECT_LE(row.score({kAllLeft, kAllLeft, 0}), kBestNode);
    EXPECT_LE(row.score({0, 0, 0}), kBestNode);
  }
}

TEST(PlacementRules, ANodeWithoutTheOtherPriorityClassIsBetterByEveryPolicy) {
  const auto beside = [](std::uint64_t gib, PriorityClass priority) {
    auto state = std::make_shared<NodeState>(*node("a", 0, 0));
    for (const char* id : {"GPU-a0", "GPU-a1"}) {
      Slice slice{{OwnerKind::kPod, "there"}, "c", CardId(id), Bytes::gib(gib), CoreShare(1)};
      slice.priority = priority;
      EXPECT_TRUE(state->ledger.add({slice}));
    }
    return state;
  };
  auto online = asks(1);
  online.front().request.priority = PriorityClass::kOnline;
  for (const auto policy : {PodPolicy(*kPack), PodPolicy(*kSpread)}) {
    for (const auto& [a, b] : {std::pair(beside(90, PriorityClass::kOffline), node("b", 0, 0)),
                               std::pair(beside(1, PriorityClass::kOffline), node("b", 99, 99))}) {
      const auto fitting = fit({{"a", a}, {"b", b}}, {OwnerKind::kPod, "p"}, online, {"a", "b"}, policy);
      ASSERT_EQ(fitting.nodes.size(), 2U);
      EXPECT_LT(fitting.nodes[0].score, fitting.nodes[1].score) << policy.on({}).node->name;
      EXPECT_GE(fitting.nodes[0].score, 0);
      EXPECT_LE(fitting.nodes[1].score, kBestScore);
      const auto ranked = ranking({{"a", a}}, {OwnerKind::kPod, "p"}, online, {{"a", 1}}, policy, "default", 1);
      EXPECT_TRUE(ranked.front().cards.front().mixed);
      EXPECT_TRUE(ranked.front().left.mixed);
    }
  }
}

TEST(PlacementRules, AnUnhealthyCardDoesNotCountAsFree) {
  auto sick = std::make_shared<NodeState>(*node("a", 0, 0));
  EXPECT_TRUE(sick->ledger.set_health(CardId("GPU-a1"), {false, "off the bus"}));
  const ClusterState cluster = {{"a", sick}, {"b", node("b", 0, 10)}};
  EXPECT_EQ(leftover_of(sick->ledger, {}).node, kAllLeft);
  EXPECT_EQ(chosen(cluster, PodPolicy(*kSpread)), "GPU-a0");
}

TEST(PlacementRules, TheRankingShowsTheTermsOfNodesAndCards) {
  const ClusterState cluster = {{"a", node("a", 100, 0)}, {"b", node("b", 50, 40)}};
  const PlacementRules rules{{kPackNode, kPack}, {}, {}};
  const Owner owner{OwnerKind::kPod, "p"};
  const auto found = fit(cluster, owner, asks(10), {"a", "b"}, both(rules));
  const auto nodes = ranking(cluster, owner, asks(10), found.nodes, both(rules), "default", 5);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].node, choose_node(found.nodes)->node);
  EXPECT_EQ(nodes[0].policies, "nodes by binpack (cluster), cards by binpack (cluster)");
  EXPECT_EQ(nodes[0].left, (Leftover{800'000, 1'000'000, 1})) << "40 of the card, 50 of the node";
  EXPECT_EQ(nodes[0].cards, (std::vector<RankedCard>{{CardId("GPU-b0"), 1'000'000, {"c"}},
                                                     {CardId("GPU-b1"), 1'200'000, {}}}));
  EXPECT_EQ(nodes[1].left, (Leftover{1'800'000, 900'000, 0}));
  EXPECT_EQ(ranking(cluster, owner, asks(10), found.nodes, both(rules), "default", 1).size(), 1U);
}

}  // namespace
}  // namespace carve
