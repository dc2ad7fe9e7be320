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

TEST(PlacePod, PlacesAllPartsOrNone) {
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
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition) << "never: there are two";
  EXPECT_EQ(refused.error().what, "needs 4 whole cards, 2 are free");
}

// The text has the number of cards that all parts of the pod need, and the number of free cards. A card that another
// part of the same pod would get counts as free.
TEST(PlacePod, TooFewWholeCardsAreCountedForAllParts) {
  const std::vector<PartRequest> four = {{"a", Phase::kRun, whole_cards(2)}, {"b", Phase::kRun, whole_cards(2)}};
  const auto refusal = [&](int held) {
    Ledger ledger = machine(4);
    const Owner other{OwnerKind::kPod, "other"};
    if (held > 0) {
      const auto placed = place(ledger, {}, whole_cards(static_cast<std::uint32_t>(held)), kPolicies[0]);
      EXPECT_TRUE(ledger.add(slices_for(other, "x", whole_cards(static_cast<std::uint32_t>(held)), *placed)));
    }
    const auto placed = place_on(ledger, four);
    EXPECT_TRUE(placed || placed.error().code == Code::kResourceExhausted);
    return placed ? "fits" : placed.error().what;
  };
  EXPECT_EQ(refusal(0), "fits");
  EXPECT_EQ(refusal(1), "needs 4 whole cards, 3 are free: 1 card: held exclusively");
  EXPECT_EQ(refusal(2), "needs 4 whole cards, 2 are free: 2 cards: held exclusively");
  EXPECT_EQ(refusal(3), "needs 4 whole cards, 1 is free: 3 cards: held exclusively");
  EXPECT_EQ(refusal(4), "needs 4 whole cards, 0 are free: 4 cards: held exclusively");
  Ledger shared = machine(4);
  ASSERT_TRUE(shared.add({Slice{{OwnerKind::kPod, "o"}, "x", CardId("GPU-0"), Bytes::gib(1), CoreShare(1)}}));
  EXPECT_EQ(place_on(shared, four).error().what,
            "needs 4 whole cards, 3 are free: 1 card: not empty, but the request is exclusive");
  EXPECT_EQ(place_on(shared, {{"i", Phase::kInit, whole_cards(4)}, {"a", Phase::kRun, whole_cards(1)}}).error().what,
            "needs 4 whole cards, 3 are free: 1 card: not empty, but the request is exclusive")
      << "the larger of both, not the sum";
  EXPECT_THAT(place_on(shared, {{"a", Phase::kRun, whole_cards(4)}, part("b", 1, 1)}).error().what,
              HasSubstr("part a: no room for 4 whole cards: 3 of 4 cards fit"))
      << "parts with different requests are reported separately";
}

TEST(PlacePod, AnInitPartUsesTheCardsOfTheRunParts) {
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

TEST(PlacePod, AnInitPartThatIsTooLargeForItsPodsCardsGetsOtherCards) {
  Ledger ledger = machine(2);
  Slice other{{OwnerKind::kPod, "other"}, "x", CardId("GPU-0"), Bytes::gib(6), CoreShare(10)};
  ASSERT_TRUE(ledger.add({other}));
  const auto placed = place_on(ledger, {part("init", 16, 90, Phase::kInit), part("a", 4, 10)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ((*placed)[0].card.str(), "GPU-0") << "binpack";
  EXPECT_EQ((*placed)[1].card.str(), "GPU-1");
  const auto more = place_on(ledger, {part("init", 4, 10, Phase::kInit, 2), part("a", 4, 10)});
  ASSERT_TRUE(more) << "more cards than the pod has";
}

PartRequest grouped(std::string name, std::uint64_t gib, Phase phase = Phase::kRun,
                    std::uint32_t count = 1) {
  PartRequest one = part(std::move(name), gib, 0, phase, count);
  one.request.share = ShareClass::kBestEffort;
  one.together = "gpushare";
  return one;
}

std::string cards_of(const std::vector<Slice>& slices) {
  std::string text;
  for (const Slice& slice : slices)
    text += (text.empty() ? "" : " ") + slice.part + ":" + slice.card.str();
  return text;
}

TEST(PlacePod, AGroupGetsACardWithRoomForAllOfItsParts) {
  Ledger ledger = machine(3);
  const auto taken = [&](const char* card, std::uint64_t gib) {
    Slice other{{OwnerKind::kPod, std::string("other") + card},
                "x",
                CardId(card),
                Bytes::gib(gib),
                CoreShare(10)};
    ASSERT_TRUE(ledger.add({other}));
  };
  taken("GPU-0", 14);
  taken("GPU-1", 12);
  const auto apart = place_on(ledger, {part("a", 2, 1), part("b", 3, 1)});
  ASSERT_TRUE(apart);
  EXPECT_EQ(cards_of(*apart), "a:GPU-0 b:GPU-1")
      << "binpack places ungrouped parts separately";
  const auto placed = place_on(ledger, {grouped("a", 2), grouped("b", 3)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ(cards_of(*placed), "a:GPU-2 b:GPU-2");
  EXPECT_EQ((*placed)[0].memory, Bytes::gib(2));
  EXPECT_EQ((*placed)[1].memory, Bytes::gib(3)) << "the memory of each part, not the sum";
  EXPECT_TRUE(Ledger(ledger).add(*placed));
  taken("GPU-2", 12);
  const auto refused = place_on(ledger, {grouped("a", 2), grouped("b", 3)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().what,
            "parts a, b on the same cards: no room for 5 GiB, besteffort: 3 cards: largest free "
            "slice 4 GiB < 5 GiB");
}

TEST(PlacePod, AnInitPartOfAGroupSharesItsCardsAndCountsWhenItIsTheLargest) {
  const auto small =
      place_on(machine(2, 8), {grouped("i", 2, Phase::kInit), grouped("a", 2), grouped("b", 3)});
  ASSERT_TRUE(small) << small.error().what;
  EXPECT_EQ(cards_of(*small), "a:GPU-0 b:GPU-0 i:GPU-0");
  Ledger ledger = machine(2, 8);
  ASSERT_TRUE(ledger.add(
      {Slice{{OwnerKind::kPod, "o"}, "x", CardId("GPU-0"), Bytes::gib(2), CoreShare(1)}}));
  const auto large =
      place_on(ledger, {grouped("i", 7, Phase::kInit), grouped("a", 2), grouped("b", 3)});
  ASSERT_TRUE(large) << large.error().what;
  EXPECT_EQ(cards_of(*large), "a:GPU-1 b:GPU-1 i:GPU-1");
  EXPECT_TRUE(ledger.add(*large));
  EXPECT_FALSE(place_on(ledger, {grouped("i", 7, Phase::kInit), grouped("a", 1)}));
}

TEST(PlacePod, TheLargestInitPartOfAGroupCountsInAnyOrder) {
  // Compute 45 is free on the first card, and all of it on the second.
  Ledger ledger = machine(2);
  Slice other{{OwnerKind::kPod, "other"}, "c", CardId("GPU-0"), Bytes::gib(1), CoreShare(55)};
  ASSERT_TRUE(ledger.add({other}));
  const auto card = [&](const std::vector<std::uint32_t>& inits, std::uint32_t run) {
    std::vector<PartRequest> parts = {part("run", 1, run)};
    for (const std::uint32_t compute : inits)
      parts.push_back(part("init" + std::to_string(parts.size()), 1, compute, Phase::kInit));
    for (PartRequest& one : parts) one.together = "gpushare";
    const auto placed = place_on(ledger, parts);
    return placed ? placed->front().card.str() : placed.error().what;
  };
  EXPECT_EQ(card({45, 30}, 10), "GPU-0");
  EXPECT_EQ(card({50, 30}, 10), "GPU-1");
  EXPECT_EQ(card({30, 50}, 10), "GPU-1");
  EXPECT_EQ(card({30, 10}, 45), "GPU-0");
  EXPECT_EQ(card({30, 10}, 46), "GPU-1");
}

TEST(PlacePod, ConcurrentPartsFollowThePolicyAndNamedCardsAreUsed) {
  const Ledger ledger = machine(2);
  const auto spread = place_pod(ledger, {}, kPod, {part("a", 1, 1), part("b", 1, 1)}, kPolicies[1]);
  ASSERT_TRUE(spread) << spread.error().what;
  EXPECT_EQ(cards_of(*spread), "a:GPU-0 b:GPU-1") << "the emptiest card for each part, not the first part's card";
  PartRequest named = part("i", 1, 1, Phase::kInit);
  named.request.constraints.cards = {CardId("GPU-1")};
  const auto placed = place_on(ledger, {part("a", 1, 1), named});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ(cards_of(*placed), "a:GPU-0 i:GPU-1") << "an init part on the card that it names";
}

TEST(PlacePod, UngroupedPartsOfThePodArePlacedSeparately) {
  const auto placed = place_on(machine(2, 8), {grouped("a", 3), part("n", 6, 10), grouped("b", 3),
                                               part("i", 8, 10, Phase::kInit)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ(cards_of(*placed), "a:GPU-0 n:GPU-1 b:GPU-0 i:GPU-0")
      << "in spec order, run parts first";
  EXPECT_TRUE(machine(2, 8).add(*placed));
}

TEST(PlacePod, AGroupOverSeveralCardsUsesAllOfThem) {
  const auto placed =
      place_on(machine(3), {grouped("a", 4, Phase::kRun, 2), grouped("b", 5, Phase::kRun, 2)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ(cards_of(*placed), "a:GPU-0 a:GPU-1 b:GPU-0 b:GPU-1");
}

TEST(PlacePod, AGroupThatCannotBeCombinedIsRefused) {
  EXPECT_EQ(place_on(machine(3), {grouped("a", 4), grouped("b", 5, Phase::kRun, 2)}).error().code,
            Code::kInvalidArgument);
  PartRequest whole{"w", Phase::kRun, whole_cards(1), "gpushare"};
  EXPECT_EQ(place_on(machine(3), {grouped("a", 4), whole}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(place_on(machine(3), {grouped("a", 4), grouped("b", 0)}).error().code,
            Code::kInvalidArgument);
}

TEST(PlacePod, AGroupsComputeIsAddedUp) {
  const auto computing = [](std::string name, std::uint32_t cores, Phase phase = Phase::kRun) {
    PartRequest one = part(std::move(name), 1, cores, phase);
    one.together = "gpushare";
    return one;
  };
  const auto placed = place_on(machine(1), {computing("a", 50), computing("b", 50)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ((*placed)[1].compute, CoreShare(50));
  EXPECT_THAT(place_on(machine(1), {computing("a", 50), computing("b", 51)}).error().what,
              HasSubstr("together they request compute 101; a card has 100"));
  EXPECT_TRUE(
      place_on(machine(1), {computing("i", 100, Phase::kInit), computing("j", 90, Phase::kInit), computing("a", 40)}))
      << "init parts run one at a time";
  Ledger used = machine(1);
  ASSERT_TRUE(used.add({Slice{{OwnerKind::kPod, "o"}, "x", CardId("GPU-0"), Bytes::gib(1), CoreShare(40)}}));
  EXPECT_TRUE(place_on(used, {computing("i", 60, Phase::kInit), computing("a", 1)}));
  EXPECT_FALSE(place_on(used, {computing("i", 61, Phase::kInit), computing("a", 1)})) << "the largest init part counts";
  Ledger ledger = machine(2);
  ASSERT_TRUE(ledger.add({Slice{{OwnerKind::kPod, "o"}, "x", CardId("GPU-0"), Bytes::gib(1), CoreShare(40)}}));
  const auto beside = place_on(ledger, {computing("a", 40), computing("b", 30)});
  ASSERT_TRUE(beside) << beside.error().what;
  EXPECT_EQ(cards_of(*beside), "a:GPU-1 b:GPU-1") << "compute 60 is left on the first card";
}

TEST(PlacePod, APartThatCouldUseAnyCardLeavesTheOnlyCardOfALaterPart) {
  Ledger ledger = machine(2);
  // Binpack prefers GPU-0 for either part; only GPU-0 has the compute of the second.
  ASSERT_TRUE(ledger.add({Slice{{OwnerKind::kPod, "m"}, "x", CardId("GPU-0"), Bytes::gib(8), CoreShare(1)},
                          Slice{{OwnerKind::kPod, "c"}, "x", CardId("GPU-1"), Bytes::gib(1), CoreShare(60)}}));
  const auto placed = place_on(ledger, {part("any", 8, 10), part("one", 1, 90)});
  ASSERT_TRUE(placed) << placed.error().what;
  EXPECT_EQ(cards_of(*placed), "any:GPU-1 one:GPU-0") << "in spec order, whatever the order of the search";
  EXPECT_THAT(place_on(ledger, {part("any", 8, 90), part("one", 1, 90)}).error().what, HasSubstr("part one: "))
      << "the error is that of spec order";
}

TEST(PlacePod, TwoPartsOfTwoCardsFitOnThreeCardsWhereTheCardsThatThePolicyPrefersAreTooFew) {
  Ledger ledger = machine(3);
  ASSERT_TRUE(ledger.add({Slice{{OwnerKind::kPod, "m"}, "x", CardId("GPU-0"), Bytes::gib(4), CoreShare(1)},
                          Slice{{OwnerKind::kPod, "n"}, "x", CardId("GPU-1"), Bytes::gib(4), CoreShare(1)}}));
  auto large = part("large", 12, 1);
  auto small = part("small", 2, 1);
  large.request.count = small.request.count = 2;
  // Binpack prefers GPU-0 and GPU-1 for either part, which then have no room for the other.
  for (const auto& parts : {std::vector{large, small}, std::vector{small, large}}) {
    const auto placed = place_on(ledger, parts);
    ASSERT_TRUE(placed) << placed.error().what;
    Ledger with = ledger;
    EXPECT_TRUE(with.add(*placed));
  }
  small.request.memory = MemoryAsk::of(Bytes::gib(5));
  EXPECT_FALSE(place_on(ledger, {large, small}));
}

// Each of the first three could use 1,820 sets of cards, and none of them leaves room for the last one.
TEST(PlacePod, TheSearchForOtherCardsEnds) {
  std::vector<PartRequest> parts;
  for (const char* name : {"a", "b", "c"}) parts.push_back(part(name, 1, 1, Phase::kRun, 4));
  parts.push_back({"d", Phase::kRun, whole_cards(16)});
  EXPECT_FALSE(place_on(machine(16), parts));
}

TEST(PlacePod, IllegalRequestsAreRefused) {
  EXPECT_FALSE(place_on(machine(1), {}));
  EXPECT_FALSE(place_on(machine(1), {part("a", 1, 1), part("a", 1, 1)}));
  EXPECT_FALSE(place_on(machine(1), {part("a", 0, 1)}));
  EXPECT_FALSE(place_on(machine(1), {part("a", 0, 1, Phase::kInit), part("b", 1, 1)}));
}

}  // namespace
}  // namespace carve
