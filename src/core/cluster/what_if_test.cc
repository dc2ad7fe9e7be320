#include "core/cluster/what_if.h"

#include <gtest/gtest.h>

#include "core/cluster/ruled_fit.h"

namespace carve {
namespace {

const Owner kPod{OwnerKind::kPod, "pod"};

Card card(const std::string& id, std::uint64_t gib) {
  Card made;
  made.id = CardId(id);
  made.memory = Bytes::gib(gib);
  return made;
}

/// Two cards of 16 GiB. 13 GiB and compute 80 of the first are held, and 10 GiB and compute 95 of the second.
ClusterState busy() {
  const auto state = std::make_shared<NodeState>();
  EXPECT_TRUE(state->ledger.put_card(card("GPU-0", 16)));
  EXPECT_TRUE(state->ledger.put_card(card("GPU-1", 16)));
  EXPECT_TRUE(state->ledger.add({Slice{{OwnerKind::kPod, "a"}, "c", CardId("GPU-0"), Bytes::gib(13), CoreShare(80)}}));
  EXPECT_TRUE(state->ledger.add({Slice{{OwnerKind::kPod, "b"}, "c", CardId("GPU-1"), Bytes::gib(10), CoreShare(95)}}));
  return {{"n", state}};
}

std::vector<PartRequest> asks(std::uint64_t gib, std::uint32_t compute, std::uint32_t cards = 1) {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.compute = CoreShare(compute);
  request.count = cards;
  return {{"c", Phase::kRun, request}};
}

TEST(WhatIf, EachQuantityIsReducedByItself) {
  // Memory alone: 6 GiB fit on the second card, but only compute 5 is free there; compute 20 is free on the first, with
  // 3 GiB.
  const auto smaller = what_would_fit(busy(), kPod, asks(6, 20), {"n"}, kPolicies[0]);
  EXPECT_EQ(smaller.memory, Bytes::gib(3));
  EXPECT_EQ(smaller.compute, 5U);
  EXPECT_EQ(smaller.cards, std::nullopt);
}

TEST(WhatIf, FewerCards) {
  const auto smaller = what_would_fit(busy(), kPod, asks(3, 20, 2), {"n"}, kPolicies[0]);
  EXPECT_EQ(smaller.cards, 1U);
  EXPECT_EQ(smaller.memory, std::nullopt);  // the second card has no compute 20 left, regardless of the memory
  EXPECT_EQ(smaller.compute, 5U);
}

TEST(WhatIf, ASmallerRequestMayBeWithinAQuota) {
  const auto state = std::make_shared<NodeState>();
  for (const char* id : {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}) EXPECT_TRUE(state->ledger.put_card(card(id, 16)));
  const ClusterState cluster{{"n", state}};
  const PodPolicy policy(kPolicies[0]);
  const auto within = [](std::vector<PartRequest> parts) {  // 32 GiB together
    for (auto& part : parts) {
      if (part.request.count * part.request.memory.bytes().whole_mib() > 32768) part.request.constraints.model = "none";
    }
    return parts;
  };
  EXPECT_EQ(what_would_fit(cluster, kPod, asks(15, 10, 3), {"n"}, policy, 0, within),
            (SmallerAsk{Bytes::mib(32768 / 3), std::nullopt, 2}));
  EXPECT_EQ(what_would_fit(cluster, kPod, asks(15, 10, 3), {"n"}, policy).cards, 2U) << "the largest smaller request";
}

TEST(WhatIf, AReductionThatDoesNotHelpByItselfIsNotProposed) {
  const auto smaller = what_would_fit(busy(), kPod, asks(12, 90), {"n"}, kPolicies[0]);
  EXPECT_EQ(smaller, SmallerAsk{});
  EXPECT_EQ(what_would_fit(busy(), kPod, {{"c", Phase::kRun, whole_cards(1)}}, {"n"}, kPolicies[0]), SmallerAsk{});
}

TEST(WhatIf, ARequestForAWholeCardGetsNoSmallerProposal) {
  const auto state = std::make_shared<NodeState>();
  EXPECT_TRUE(state->ledger.put_card(card("GPU-0", 16)));
  EXPECT_TRUE(state->ledger.put_card(card("GPU-1", 16)));
  auto parts = asks(20, 50);
  EXPECT_EQ(what_would_fit({{"n", state}}, kPod, parts, {"n"}, kPolicies[0]).memory, Bytes::gib(16));
  parts.push_back({"d", Phase::kRun, whole_cards(1)});
  EXPECT_EQ(what_would_fit({{"n", state}}, kPod, parts, {"n"}, kPolicies[0]), SmallerAsk{});
}

TEST(WhatIf, ReservedCapacityIsNotProposedToPodsOfLowerPriority) {
  auto state = *busy().at("n");
  const Owner high{OwnerKind::kPod, "high"};
  state.reservations = {{high, 1000, {Slice{high, "c", CardId("GPU-0"), Bytes::gib(2), CoreShare(10)}}, {}}};
  const ClusterState cluster{{"n", std::make_shared<NodeState>(state)}};
  const PodPolicy policy(kPolicies[0]);
  EXPECT_EQ(what_would_fit(cluster, kPod, asks(6, 10), {"n"}, policy, 1000).memory, Bytes::gib(1));
  EXPECT_EQ(what_would_fit(cluster, kPod, asks(6, 10), {"n"}, policy, 1001).memory, Bytes::gib(3));
}

}  // namespace
}  // namespace carve
