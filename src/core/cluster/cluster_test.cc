#include "core/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve {
namespace {

using testing::HasSubstr;

const Owner kPod{OwnerKind::kPod, "pod"};

std::shared_ptr<const NodeState> node(std::uint64_t gib, std::uint64_t used_gib,
                                      const std::string& model = "NVIDIA T4") {
  const auto made = std::make_shared<NodeState>();
  NodeState& state = *made;
  Card card;
  card.id = CardId("GPU-0");
  card.model = model;
  card.memory = Bytes::gib(gib);
  EXPECT_TRUE(state.ledger.put_card(card));
  if (used_gib > 0) {
    EXPECT_TRUE(state.ledger.add(
        {Slice{{OwnerKind::kPod, "o"}, "c", card.id, Bytes::gib(used_gib), CoreShare(1)}}));
  }
  return made;
}

std::vector<PartRequest> asks(std::uint64_t gib, const std::string& model = "") {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.compute = CoreShare(10);
  request.constraints.model = model;
  return {{"c", Phase::kRun, request}};
}

TEST(Cluster, FitListsTheFittingNodesAndTheReasonsOfTheOthers) {
  const ClusterState cluster = {{"a", node(16, 0)}, {"b", node(16, 14)}, {"c", node(16, 4)}};
  const Fit found = fit(cluster, kPod, asks(4), {"c", "a", "b", "x"}, kPolicies[0]);
  ASSERT_EQ(found.nodes.size(), 2U);
  EXPECT_EQ(found.nodes[0].node, "c");
  EXPECT_EQ(choose_node(found.nodes)->node, "c") << "binpack: the fuller node";
  ASSERT_EQ(found.refused.size(), 2U);
  EXPECT_THAT(found.refused[0].why, HasSubstr("largest free slice 2 GiB < 4 GiB"));
  EXPECT_FALSE(found.refused[0].final);
  EXPECT_TRUE(found.refused[1].final);
  const Fit spread = fit(cluster, kPod, asks(4), {"c", "a", "b"}, kPolicies[1]);
  EXPECT_EQ(choose_node(spread.nodes)->node, "a");
  EXPECT_EQ(choose_node({}), nullptr);
}

TEST(Cluster, EqualNodesAreChosenByName) {
  const ClusterState cluster = {{"b", node(16, 0)}, {"a", node(16, 0)}};
  EXPECT_EQ(choose_node(fit(cluster, kPod, asks(4), {"b", "a"}, kPolicies[0]).nodes)->node, "a");
}

/// Two nodes with two cards of 16 GiB each. The pods of a trace arrive one after the other and stay. Returns the card
/// of each pod.
std::string places_of(const std::vector<std::pair<std::string, std::vector<PartRequest>>>& trace,
                      const PolicyRow& policy) {
  std::map<std::string, NodeState> nodes;
  for (const char* name : {"n1-0", "n1-1", "n2-0", "n2-1"}) {
    Card card;
    card.id = CardId(name);
    card.model = "NVIDIA T4";
    card.memory = Bytes::gib(16);
    EXPECT_TRUE(nodes[std::string(name, 2)].ledger.put_card(card));
  }
  std::string places;
  for (const auto& [pod, parts] : trace) {
    ClusterState cluster;
    for (const auto& [name, state] : nodes) cluster.put(name, std::make_shared<NodeState>(state));
    const Owner owner{OwnerKind::kPod, pod};
    const Fit found = fit(cluster, owner, parts, {"n1", "n2"}, policy);
    const FittingNode* best = choose_node(found.nodes);
    places += (places.empty() ? "" : " ") + pod + ":";
    if (best == nullptr) {
      places += "none";
      continue;
    }
    NodeState& node = nodes[best->node];
    const auto placed = place_pod(node.ledger, node.links, owner, parts, policy);
    EXPECT_TRUE(placed && node.ledger.add(*placed));
    places += placed->front().card.str();
  }
  return places;
}

// D3-1 for both policies.
TEST(Cluster, EachPolicyPlacesTheSameTraceDifferently) {
  const std::vector<PartRequest> whole = {{"c", Phase::kRun, whole_cards(1)}};
  const std::vector<std::pair<std::string, std::vector<PartRequest>>> trace = {
      {"a", asks(4)}, {"b", asks(4)}, {"c", asks(8)}, {"d", asks(10)}, {"e", whole}, {"f", asks(4)}};
  EXPECT_EQ(places_of(trace, kPolicies[0]), "a:n1-0 b:n1-0 c:n1-0 d:n1-1 e:n2-0 f:n1-1") << "binpack";
  EXPECT_EQ(places_of(trace, kPolicies[1]), "a:n1-0 b:n2-0 c:n1-1 d:n2-1 e:none f:n1-0") << "spread";
}

TEST(Cluster, RefusalsAreGroupedTheLargestGroupFirst) {
  ClusterState cluster;
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    names.push_back("n" + std::to_string(i));
    cluster.put(names.back(), node(16, i < 3 ? 13 : 15));
  }
  names.push_back("none");
  const std::string text = explain(fit(cluster, kPod, asks(4), names, kPolicies[0]).refused, 2);
  EXPECT_EQ(text.find("3 nodes: "), 0U) << text;
  EXPECT_THAT(text, HasSubstr("; 2 nodes: "));
  EXPECT_THAT(text, HasSubstr("; 1 more for other reasons"));
  EXPECT_EQ(explain({}), "");
}

TEST(Cluster, ANodeThatIsClosedToADialectServesOtherDialects) {
  auto closed = std::make_shared<NodeState>(*node(16, 0));
  closed->closed_to = {{"gpushare", "another device plugin serves it"}};
  closed->reserved = {kPod};
  const ClusterState cluster = {{"a", closed}};
  auto parts = asks(4);
  EXPECT_EQ(fit(cluster, kPod, parts, {"a"}, kPolicies[0]).nodes.size(), 1U);
  parts.push_back(parts.front());
  parts.back().part = "d";
  parts.back().request.dialect = "gpushare";
  const Fit found = fit(cluster, kPod, parts, {"a"}, kPolicies[0]);
  ASSERT_EQ(found.refused.size(), 1U) << "one container of several is enough, even where capacity is set aside";
  EXPECT_EQ(found.refused[0].why, "another device plugin serves it");
  EXPECT_FALSE(found.refused[0].final);
  closed->closed = "its agent is being replaced";
  EXPECT_EQ(closed_for(*closed, parts), closed->closed) << "to every dialect";
}

TEST(Cluster, AMissingModelIsAFinalReason) {
  const ClusterState cluster = {{"a", node(16, 0)}};
  const Fit found = fit(cluster, kPod, asks(4, "h200"), {"a"}, kPolicies[0]);
  ASSERT_EQ(found.refused.size(), 1U);
  EXPECT_TRUE(found.refused[0].final);
}

}  // namespace
}  // namespace carve
