#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/policy/policy.h"
#include "core/policy/refusals.h"

namespace carve {
namespace {

using testing::HasSubstr;

Card card(const std::string& name, std::uint64_t gib = 16, const std::string& model = "NVIDIA T4") {
  Card c;
  c.id = CardId("GPU-" + name);
  c.model = model;
  c.memory = Bytes::gib(gib);
  return c;
}

Ledger ledger_of(const std::vector<Card>& cards) {
  Ledger ledger;
  for (const Card& c : cards) EXPECT_TRUE(ledger.put_card(c));
  return ledger;
}

Request fraction(std::uint64_t gib, std::uint32_t cores) {
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(gib));
  request.compute = CoreShare(cores);
  if (cores == 0) request.share = ShareClass::kBestEffort;
  return request;
}

void hold(Ledger& ledger, const std::string& uid, const Request& request, const std::string& name) {
  std::vector<PlacedCard> at = {{CardId("GPU-" + name),
                                 request.memory.on(ledger.find(CardId("GPU-" + name))->card.memory),
                                 request.compute.share()}};
  const auto held = ledger.add(slices_for(Owner{OwnerKind::kLocal, uid}, "main", request, at));
  ASSERT_TRUE(held) << held.error().what;
}

std::string chosen(const Result<std::vector<PlacedCard>>& placed) {
  if (!placed) return placed.error().what;
  std::string text;
  for (const PlacedCard& c : *placed) text += (text.empty() ? "" : " ") + c.card.str();
  return text;
}

const PolicyRow& binpack() { return **policy_named("binpack"); }
const PolicyRow& spread() { return **policy_named("spread"); }

TEST(Place, AnExcludedCardIsNotUsed) {
  const Ledger ledger = ledger_of({card("a"), card("b")});
  Request request = fraction(1, 10);
  request.constraints.not_cards = {CardId("GPU-a")};
  EXPECT_EQ(chosen(place(ledger, {}, request, kPolicies[0])), "GPU-b");
  request.constraints.not_cards.emplace_back("GPU-b");
  const auto none = place(ledger, {}, request, kPolicies[0]);
  EXPECT_EQ(none.error().code, Code::kFailedPrecondition) << "no change of other slices helps";
  EXPECT_THAT(none.error().what, HasSubstr("2 cards: excluded by the request"));
  request.constraints.cards = {CardId("GPU-b")};
  EXPECT_FALSE(place(ledger, {}, request, kPolicies[0])) << "an exclusion overrules";
  request.constraints.not_cards = {CardId("GPU b")};
  EXPECT_FALSE(joined(validate(request)));
}

TEST(Place, BinpackFillsTheFullestCardAndSpreadTheEmptiest) {
  Ledger ledger = ledger_of({card("a"), card("b")});
  hold(ledger, "x", fraction(4, 30), "b");
  EXPECT_EQ(chosen(place(ledger, {}, fraction(4, 30), binpack())), "GPU-b");
  EXPECT_EQ(chosen(place(ledger, {}, fraction(4, 30), spread())), "GPU-a");
}

TEST(Place, RefusesASliceThatTheCardsTableCannotHold) {
  Ledger ledger = ledger_of({card("a")});
  Request request = fraction(1, 0);
  request.memory = MemoryAsk::of(kSmallestSlice);
  for (std::uint32_t i = 0; i < 112; ++i) hold(ledger, "x" + std::to_string(i), request, "a");
  const auto ordinary = place(ledger, {}, request, binpack(), 16);
  ASSERT_FALSE(ordinary);
  EXPECT_EQ(ordinary.error().code, Code::kResourceExhausted);
  EXPECT_THAT(ordinary.error().what, HasSubstr("1 card: 112 slices are on it, and 16 of 128 are kept for root"));
  for (std::uint32_t i = 112; i < 128; ++i) {
    ASSERT_TRUE(place(ledger, {}, request, binpack()));
    hold(ledger, "x" + std::to_string(i), request, "a");
  }
  const auto full = place(ledger, {}, request, binpack());
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_THAT(full.error().what, HasSubstr("1 card: 128 slices are on it, a card has at most 128"));
}

TEST(Place, RefusesASliceBelowTheSmallestSize) {
  const Ledger ledger = ledger_of({card("a")});
  Request request = fraction(1, 10);
  request.memory = MemoryAsk::of(Bytes::mib(1) - Bytes(1));
  const auto refused = place(ledger, {}, request, binpack());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().what,
            "memory: 1048575 bytes is not legal; ask for at least 1 MiB (1048576 bytes) of each card");
  request.memory = MemoryAsk::of(kSmallestSlice);
  EXPECT_TRUE(place(ledger, {}, request, binpack()));
}

TEST(Place, TiesGoToTheLowerUuid) {
  const Ledger ledger = ledger_of({card("b"), card("a"), card("c")});
  EXPECT_EQ(chosen(place(ledger, {}, fraction(4, 30), binpack())), "GPU-a");
  EXPECT_EQ(chosen(place(ledger, {}, fraction(4, 30), spread())), "GPU-a");
}

TEST(Place, ARefusalIsGroupedAndHasTheNumbers) {
  Ledger ledger = ledger_of({card("a"), card("b"), card("c", 80, "NVIDIA A100")});
  hold(ledger, "x", fraction(14, 10), "a");
  hold(ledger, "y", fraction(13, 10), "b");
  Request request = fraction(4, 30);
  request.constraints.model = "t4";
  const auto placed = place(ledger, {}, request, binpack());
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, Code::kResourceExhausted);
  EXPECT_EQ(placed.error().what,
            "no room for 4 GiB, compute 30, burst: 2 cards: largest free slice 3 GiB < 4 GiB; "
            "1 card: model is not t4");
}

TEST(Place, DistinguishesNeverFromNotNow) {
  Ledger ledger = ledger_of({card("a")});
  auto never = place(ledger, {}, fraction(20, 30), binpack());
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(never.error().what, HasSubstr("total memory 16 GiB < 20 GiB"));
  never = place(ledger, {}, whole_cards(2), binpack());
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(never.error().what, HasSubstr("1 of 2 cards fit"));
  hold(ledger, "x", fraction(4, 80), "a");
  const auto later = place(ledger, {}, fraction(4, 30), binpack());
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, Code::kResourceExhausted);
  EXPECT_THAT(later.error().what, HasSubstr("largest free compute 20 < 30"));
  EXPECT_THAT(place({}, {}, fraction(1, 1), binpack()).error().what, HasSubstr("has no card"));
}

TEST(Place, AWholeCardNeedsAnEmptyCardAndTakesAllOfIt) {
  Ledger ledger = ledger_of({card("a"), card("b")});
  hold(ledger, "x", fraction(1, 0), "a");
  EXPECT_EQ(chosen(place(ledger, {}, whole_cards(1), binpack())), "GPU-b");
  hold(ledger, "y", whole_cards(1), "b");
  const auto placed = place(ledger, {}, whole_cards(1), binpack());
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().what, HasSubstr("1 card: held exclusively"));
  EXPECT_THAT(placed.error().what, HasSubstr("1 card: not empty, but the request is exclusive"));
}

TEST(Place, OnlyNamedCardsAreUsedAndMissingOnesAreReported) {
  const Ledger ledger = ledger_of({card("a"), card("b")});
  Request request = fraction(4, 30);
  request.constraints.cards = {CardId("GPU-b")};
  EXPECT_EQ(chosen(place(ledger, {}, request, binpack())), "GPU-b");
  request.constraints.cards = {CardId("GPU-z")};
  EXPECT_THAT(chosen(place(ledger, {}, request, binpack())),
              HasSubstr("not on this machine: GPU-z"));
}

TEST(Place, UnhealthyCardsAreLeftOutUntilTheyRecover) {
  Ledger ledger = ledger_of({card("a")});
  ASSERT_TRUE(ledger.set_health(CardId("GPU-a"), Health{false, "XID 79"}));
  const auto placed = place(ledger, {}, fraction(4, 30), binpack());
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, Code::kResourceExhausted);
  EXPECT_THAT(placed.error().what, HasSubstr("unhealthy: XID 79"));
  ASSERT_TRUE(ledger.set_health(CardId("GPU-a"), Health{}));
  EXPECT_TRUE(place(ledger, {}, fraction(4, 30), binpack()));
}

TEST(Place, SeveralWholeCardsAreTheBestConnectedOnes) {
  const Ledger ledger = ledger_of({card("a"), card("b"), card("c"), card("d")});
  LinkMatrix links({CardId("GPU-a"), CardId("GPU-b"), CardId("GPU-c"), CardId("GPU-d")});
  links.set(CardId("GPU-a"), CardId("GPU-b"), {LinkLevel::kSystem, 0});
  links.set(CardId("GPU-a"), CardId("GPU-c"), {LinkLevel::kNvLink, 4});
  links.set(CardId("GPU-b"), CardId("GPU-d"), {LinkLevel::kNvLink, 12});
  EXPECT_EQ(chosen(place(ledger, links, whole_cards(2), binpack())), "GPU-b GPU-d");
  EXPECT_EQ(chosen(place(ledger, {}, whole_cards(2), binpack())), "GPU-a GPU-b");
}

TEST(Place, PercentIsTakenOfEachCard) {
  const Ledger ledger = ledger_of({card("a", 16), card("b", 80)});
  Request request;
  request.count = 2;
  request.memory = MemoryAsk::of_percent(25);
  request.compute = CoreShare(25);
  const auto placed = place(ledger, {}, request, binpack());
  ASSERT_TRUE(placed);
  EXPECT_EQ((*placed)[0].memory, Bytes::gib(4));
  EXPECT_EQ((*placed)[1].memory, Bytes::gib(20));
}

TEST(Place, TflopsAreTakenOfEachCardsModel) {
  Card slow = card("a", 16);
  slow.model = "Tesla T4";
  Card fast = card("b", 80);
  fast.model = "NVIDIA H200";
  Card other = card("c", 80);
  other.model = "Another 9000";
  Ledger ledger = ledger_of({slow, fast, other});
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(4));
  request.compute = ComputeAsk::of_tflops(20);
  const auto placed = place(ledger, {}, request, binpack());
  ASSERT_TRUE(placed);
  EXPECT_EQ(chosen(placed), "GPU-b");
  EXPECT_EQ(placed->front().compute, CoreShare(30));
  for (const char* owner : {"1", "2", "3"})
    ASSERT_TRUE(ledger.add(slices_for({OwnerKind::kPod, owner}, "c", request, *placed)));
  const auto full = place(ledger, {}, request, binpack());
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_EQ(full.error().what,
            "no room for 4 GiB, compute 20 TFLOPS, burst: 1 card: largest free compute 10 < 30; 2 cards: total compute "
            "8.1 TFLOPS < 20");
  ledger = ledger_of({other});
  const auto never = place(ledger, {}, request, binpack());
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(never.error().what, testing::HasSubstr("Carve does not know the FP32 TFLOPS of Another 9000"));
}

TEST(Policy, AnUnknownNameIsRefusedWithTheListOfNames) {
  const auto row = policy_named("random");
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().what, "policy: \"random\" is unknown; legal: binpack, spread");
}

TEST(Policy, AnUnknownNameIsQuotedUpToALimit) {
  const std::string what = policy_named(std::string(100, 'z')).error().what;
  EXPECT_EQ(std::count(what.begin(), what.end(), 'z'), 64);
}

TEST(Place, OnlyOnCardsInAModeThatPermitsTheRequest) {
  Card only_whole = card("a");
  only_whole.mode = CardMode::kExclusive;
  Card only_fractions = card("b");
  only_fractions.mode = CardMode::kShared;
  const Ledger ledger = ledger_of({only_whole, only_fractions});
  EXPECT_EQ(chosen(place(ledger, {}, fraction(4, 30), binpack())), "GPU-b");
  EXPECT_EQ(chosen(place(ledger, {}, whole_cards(1), binpack())), "GPU-a");
  EXPECT_THAT(chosen(place(ledger, {}, whole_cards(2), binpack())),
              HasSubstr("1 card: in mode shared, accepts no request for a whole card"));
  Request two = fraction(4, 30);
  two.count = 2;
  EXPECT_THAT(chosen(place(ledger, {}, two, binpack())),
              HasSubstr("1 card: in mode exclusive, accepts only requests for whole cards"));
}

// Of several cards that refuse for one reason, the text describes the one that came nearest, wherever it is listed.
TEST(Place, TheNearestCardOfEachReasonIsDescribed) {
  Ledger ledger = ledger_of({card("a"), card("b"), card("c")});
  hold(ledger, "a", fraction(1, 90), "a");
  hold(ledger, "b", fraction(1, 70), "b");
  hold(ledger, "c", fraction(1, 80), "c");
  std::vector<RefusedCard> refused;
  const Request wanted = fraction(4, 50);
  for (const CardState& one : ledger.cards()) refused.push_back({&one, offer_of(one, wanted), Refusal::kCompute});
  EXPECT_EQ(explain(wanted, refused), "3 cards: largest free compute 30 < 50");
  for (auto& one : refused) one.why = Refusal::kMemory;
  EXPECT_THAT(explain(wanted, refused), HasSubstr("3 cards: largest free slice 15 GiB"));
  hold(ledger, "a2", fraction(1, 1), "a");
  hold(ledger, "c2", fraction(1, 1), "c");
  refused.clear();
  for (const CardState& one : ledger.cards()) refused.push_back({&one, offer_of(one, wanted), Refusal::kSlices});
  EXPECT_EQ(explain(wanted, refused), "3 cards: 1 slices are on it, a card has at most 128");
  for (const char* name : {"a", "b"}) {
    EXPECT_TRUE(ledger.set_health(CardId(std::string("GPU-") + name), {false, std::string("XID of ") + name}));
  }
  refused.clear();
  for (const CardState& one : ledger.cards()) {
    if (!one.card.health.ok) refused.push_back({&one, offer_of(one, wanted), Refusal::kUnhealthy});
  }
  EXPECT_EQ(explain(wanted, refused), "2 cards: unhealthy: XID of a") << "the first of equals";
}

Request of_class(PriorityClass priority, std::uint64_t gib = 1) {
  Request request = fraction(gib, 5);
  request.priority = priority;
  return request;
}

TEST(Place, OnlineAndOfflineRequestsAvoidTheCardsOfTheOtherClass) {
  Ledger ledger = ledger_of({card("a"), card("b"), card("c"), card("d")});
  hold(ledger, "offline", of_class(PriorityClass::kOffline, 8), "a");
  hold(ledger, "online", of_class(PriorityClass::kOnline, 2), "c");
  for (const PolicyRow& policy : kPolicies) {
    const std::string online = chosen(place(ledger, {}, of_class(PriorityClass::kOnline), policy));
    const std::string offline = chosen(place(ledger, {}, of_class(PriorityClass::kOffline), policy));
    EXPECT_EQ(online, policy.name == "binpack" ? "GPU-c" : "GPU-b") << "not beside offline, where binpack would fill";
    EXPECT_EQ(offline, policy.name == "binpack" ? "GPU-a" : "GPU-b") << "not beside online";
  }
  EXPECT_EQ(chosen(place(ledger, {}, of_class(PriorityClass::kStandard), binpack())), "GPU-a");
  // Where no other card serves it, the request gets one of them, the best by the policy.
  hold(ledger, "standard", of_class(PriorityClass::kStandard, 16), "b");
  hold(ledger, "standard2", of_class(PriorityClass::kStandard, 16), "d");
  EXPECT_EQ(chosen(place(ledger, {}, of_class(PriorityClass::kOffline, 10), binpack())), "GPU-c");
}

TEST(Place, SeveralCardsMeetTheOtherClassOnAsFewAsPossible) {
  Ledger ledger = ledger_of({card("a"), card("b"), card("c")});
  hold(ledger, "offline", of_class(PriorityClass::kOffline, 8), "a");
  hold(ledger, "offline2", of_class(PriorityClass::kOffline, 1), "b");
  Request two = of_class(PriorityClass::kOnline);
  two.count = 2;
  EXPECT_EQ(chosen(place(ledger, {}, two, binpack())), "GPU-a GPU-c");
  EXPECT_EQ(chosen(place(ledger, {}, two, spread())), "GPU-b GPU-c");
}

TEST(Policy, AScoreRanksWhatIsLeftOfACardAndItsNeighbours) {
  const auto score = [](const PolicyRow& policy, std::uint64_t gib, std::uint32_t compute, std::uint32_t owners) {
    CardState state{card("a"), {}, {}};
    state.use = {Bytes::gib(gib), CoreShare(compute), false, 1, owners};
    return policy.score(state, {Bytes::gib(1), CoreShare(10), CoreShare(10)});
  };
  EXPECT_GT(score(binpack(), 5, 30, 1), score(binpack(), 4, 30, 1)) << "less memory is left";
  EXPECT_GT(score(binpack(), 4, 31, 1), score(binpack(), 4, 30, 1)) << "less compute is left";
  EXPECT_EQ(score(binpack(), 4, 30, 2), score(binpack(), 4, 30, 1));
  EXPECT_LT(score(spread(), 5, 30, 1), score(spread(), 4, 30, 1));
  EXPECT_LT(score(spread(), 4, 31, 1), score(spread(), 4, 30, 1));
  EXPECT_LT(score(spread(), 4, 30, 2), score(spread(), 4, 30, 1)) << "one more neighbour";
  EXPECT_GT(score(spread(), 4, 30, 4095), score(spread(), 4, 31, 0)) << "neighbours count less than the leftover";
}

TEST(Explain, NamesEveryReasonOnce) {
  const Ledger ledger = ledger_of({card("a")});
  const CardState& there = *ledger.find(CardId("GPU-a"));
  Request request = fraction(4, 30);
  request.constraints.barred = {{there.card.model, "quota of namespace a: 4 of 4 cards in use"}};
  for (int kind = 0; kind <= static_cast<int>(Refusal::kNotNamed); ++kind) {
    const std::string text = explain(request, {{&there, offer_of(there, request), static_cast<Refusal>(kind)}});
    EXPECT_THAT(text, testing::StartsWith("1 card: ")) << kind;
  }
}

}  // namespace
}  // namespace carve
