#include "core/policy/node_policy.h"

#include <gtest/gtest.h>

#include "core/cluster/ranking.h"

namespace carve {
namespace {

const Owner kPod{OwnerKind::kPod, "pod"};

Card card(const std::string& id, bool ok = true) {
  Card made;
  made.id = CardId(id);
  made.model = "NVIDIA T4";
  made.memory = Bytes::gib(10);
  made.health.ok = ok;
  return made;
}

Slice slice(const Owner& owner, const std::string& on, std::uint64_t gib, std::uint32_t compute,
            Phase phase = Phase::kRun) {
  Slice made{owner, "c", CardId(on), Bytes::gib(gib), CoreShare(compute)};
  made.phase = phase;
  return made;
}

/// Two open cards, of the first of which 1 GiB of 10 and compute 10 are held; an unhealthy card; a closed card.
NodeState machine() {
  NodeState state;
  for (const char* id : {"GPU-0", "GPU-1"}) EXPECT_TRUE(state.ledger.put_card(card(id)));
  EXPECT_TRUE(state.ledger.put_card(card("GPU-2", false)));
  Card closed = card("GPU-3");
  closed.closed = "closed";
  EXPECT_TRUE(state.ledger.put_card(closed));
  EXPECT_TRUE(state.ledger.add({slice({OwnerKind::kPod, "other"}, "GPU-0", 1, 10)}));
  return state;
}

TEST(Leftover, CoversTheGivenCardsAndAllOpenCards) {
  const Ledger ledger = machine().ledger;
  const Leftover one = leftover_of(ledger, {slice(kPod, "GPU-0", 4, 30)});
  EXPECT_EQ(one.cards, 500'000 + 600'000) << "5 of 10 GiB and compute 60";
  EXPECT_EQ(one.node, (1'100'000 + 2'000'000) / 2);
  EXPECT_EQ(one.owners, 1U);
  const Leftover two = leftover_of(ledger, {slice(kPod, "GPU-0", 4, 30), slice(kPod, "GPU-1", 10, 100)});
  EXPECT_EQ(two.cards, 1'100'000 / 2);
  EXPECT_EQ(two.node, 1'100'000 / 2);
  EXPECT_EQ(two.owners, 1U);
  const Leftover init = leftover_of(ledger, {slice(kPod, "GPU-1", 4, 30, Phase::kInit)});
  EXPECT_EQ(init.cards, 600'000 + 700'000);
  EXPECT_EQ(init.node, (1'800'000 + 2'000'000) / 2) << "an init part ends";
  EXPECT_EQ(init.owners, 0U);
  EXPECT_EQ(leftover_of(ledger, {}), (Leftover{0, 1'900'000, 0}));
  EXPECT_EQ(leftover_of(Ledger(), {}), Leftover{});
}

TEST(NodePolicy, BinpackPrefersTheFullestCardsThenTheFullestNode) {
  const auto score = [](std::int64_t cards, std::int64_t node) { return score_node_binpack({cards, node, 0}); };
  EXPECT_GT(score(5, kAllLeft), score(6, 0)) << "cards count more than the node";
  EXPECT_GT(score(5, 7), score(5, 8));
  EXPECT_GE(score(kAllLeft, kAllLeft), 0);
  EXPECT_LE(score(0, 0), kBestNode);
}

TEST(NodePolicy, SpreadPrefersTheEmptiestNodeThenTheEmptiestCardsThenTheFewestOwners) {
  const auto score = [](std::int64_t node, std::int64_t cards, std::uint32_t owners) {
    return score_node_spread({cards, node, owners});
  };
  EXPECT_GT(score(6, 0, 4000), score(5, kAllLeft, 0));
  EXPECT_GT(score(5, 8, 4000), score(5, 7, 0));
  EXPECT_GT(score(5, 7, 3), score(5, 7, 4));
  EXPECT_GT(score(5, 8, 1'000'000), score(5, 7, 0)) << "more owners than are counted";
  EXPECT_GE(score(0, 0, 1'000'000), 0);
  EXPECT_LE(score(kAllLeft, kAllLeft, 0), kBestNode);
}

TEST(NodePolicy, EveryNodeWithTheOppositePriorityClassIsWorse) {
  for (const NodePolicyRow& mixed : kNodePolicies) {
    for (const NodePolicyRow& other : kNodePolicies) {
      std::int64_t best = 0;
      for (const std::int64_t left : {std::int64_t{0}, kAllLeft})
        best = std::max(best, score_of(mixed, {left, left, 0, true}));
      for (const std::int64_t left : {std::int64_t{0}, kAllLeft}) EXPECT_GT(score_of(other, {left, left, 5000}), best);
    }
  }
}

TEST(Ranking, ListsTheBestNodesWithTheTermsOfTheirScores) {
  const auto first = std::make_shared<NodeState>(machine());
  const auto second = std::make_shared<NodeState>();
  EXPECT_TRUE(second->ledger.put_card(card("GPU-9")));
  const ClusterState cluster = {{"a", first}, {"b", second}, {"c", second}};
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(4));
  request.compute = CoreShare(30);
  const std::vector<PartRequest> parts = {{"c", Phase::kRun, request}};
  const std::vector<FittingNode> fitting = {{"c", 5}, {"gone", 9}, {"a", 7}, {"b", 5}};
  const auto nodes = ranking(cluster, kPod, parts, fitting, PodPolicy(kPolicies[0]), "s", 3);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].node + nodes[1].node + nodes[2].node, "abc") << "by score, then by name";
  EXPECT_EQ(nodes[0].score, 7);
  EXPECT_EQ(nodes[0].left, (Leftover{1'100'000, 1'550'000, 1}));
  ASSERT_EQ(nodes[0].cards.size(), 4U);
  EXPECT_EQ(nodes[0].cards[0], (RankedCard{CardId("GPU-0"), 1'800'000, {"c"}}));
  EXPECT_EQ(nodes[0].cards[1], (RankedCard{CardId("GPU-1"), 2'000'000, {}}));
  EXPECT_EQ(ranking(cluster, kPod, parts, fitting, PodPolicy(kPolicies[0]), "s", 1).size(), 1U);
  EXPECT_TRUE(ranking(cluster, kPod, parts, fitting, PodPolicy(kPolicies[0]), "s", 0).empty());
  request.memory = MemoryAsk::of(Bytes::gib(11));
  const auto reserved =
      ranking(cluster, kPod, {{"c", Phase::kRun, request}}, {{"a", 1}}, PodPolicy(kPolicies[0]), "s", 1);
  ASSERT_EQ(reserved.size(), 1U) << "it fits because capacity is set aside for it, not by the ledger";
  EXPECT_EQ(reserved[0].left, Leftover{});
}

}  // namespace
}  // namespace carve
