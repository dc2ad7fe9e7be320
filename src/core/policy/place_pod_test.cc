#include "core/policy/place_pod.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve {
namespace {

using testing::HasSubstr;

const Owner kPod{OwnerKind::kPod, "pod"};

Ledger machine(int cards, std::uint64_t gib = 16) {
  Ledger ledger;
  for (int i = 0; i < cards; ++i) {
    Card card;
    card.id = CardId("GPU-" + std::to_string(i));
    card.model = "NVIDIA T4";
    card.memory = Bytes::gib(gib);
    EXPECT_TRUE(ledger.put_card(card));
  }
  return ledger;
}

PartRequest part(std::string name, std::uint64_t gib, std::uint32_t cores,
                 Phase phase = Phase::kRun, std::uint32_t count = 1) {
  Request request;
  request.count = count;
  request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.compute = CoreShare(cores);
  return {std::move(name), phase, request};
}

Result<std::vector<Slice>> place_on(const Ledger& ledger, const std::vector<PartRequest>& parts) {
  return place_pod(ledger, {}, kPod, parts, kPolicies[0]);
}

TEST(PlacePod, AllPartsTogetherOrNone) {
  const Ledger ledger = machine(2);
  const std::vector<PartRequest> two = {{"a", Phase::kRun, whole_cards(1)},
                                        {"b", Phase::kRun, whole_cards(1)}};
  const auto placed = place_on(ledger, two);
  ASSERT_TRUE(placed) << placed.error().what;
  ASSERT_EQ(placed->size(), 2U);
  EXPECT_NE((*placed)[0].card, (*placed)[1].card);
  EXPECT_TRUE(Ledger(ledger).add(*placed));
  const std::vector<PartRequest> three = {{"a", Phase::kRun, whole_cards(2)},
                                          {"b", Phase::kRun, whole_cards(2)}};
  const auto refused = place_on(ledger, three);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().what, HasSubstr("part b: no room for 2 whole cards"));
}

TEST(PlacePod, AnInitPartTakesTheCardsOfThoseThatComeAfterIt) {
  const Ledger ledger = machine(4);
  const auto placed =
      place_on(ledger, {part("init", 12, 80, Phase::kInit), part("a", 8, 50), part("b", 8, 60)});
  ASSERT_TRUE(placed) << placed.error().what;
  ASSERT_EQ(placed->size(), 3U);
  const auto& init = placed->back();
  EXPECT_EQ(init.part, "init");
  EXPECT_EQ(init.phase, Phase::kInit);
  EXPECT_EQ(init.card, placed->front().card) << "the pod's first card in spec order";
  Ledger booked = ledger;
  ASSERT_TRUE(booked.add(*placed));
  EXPECT_EQ(booked.find(init.card)->use.memory, Bytes::gib(12))
      << "the larger of both, not the sum";
}

TEST(PlacePod, AnInitPartThatIsTooLargeForItsPodsCardsFindsOthers) {
  Ledger ledger = machine(2);
  Slice other{{OwnerKind::kPod, "other"}, "x", CardId("GPU-0"), Bytes::gib(6), CoreShare(10)};
  ASSERT_TRUE(ledger.add({other}));
  const auto placed = place_on(ledger, {part("init", 16, 90, Phase::kInit), part("a", 4, 10)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ((*placed)[0].card.str(), "GPU-0") << "binpack";
  EXPECT_EQ((*placed)[1].card.str(), "GPU-1");
  const auto more = place_on(ledger, {part("init", 4, 10, Phase::kInit, 2), part("a", 4, 10)});
  ASSERT_TRUE(more) << "more cards than its pod has";
}

TEST(PlacePod, NonsenseIsRefused) {
  EXPECT_FALSE(place_on(machine(1), {}));
  EXPECT_FALSE(place_on(machine(1), {part("a", 1, 1), part("a", 1, 1)}));
  EXPECT_FALSE(place_on(machine(1), {part("a", 0, 1)}));
  EXPECT_FALSE(place_on(machine(1), {part("a", 0, 1, Phase::kInit), part("b", 1, 1)}));
}

}  // namespace
}  // namespace carve
