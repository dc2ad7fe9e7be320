#include "core/policy/unschedulable_reason.h"

#include <gtest/gtest.h>

#include <set>

#include "core/policy/place_pod.h"

namespace carve {
namespace {

class UnschedulableReasonTest : public testing::Test {
 protected:
  UnschedulableReasonTest() {
    for (const char* id : {"GPU-0", "GPU-1"}) {
      Card card;
      card.id = CardId(id);
      card.model = "NVIDIA T4";
      card.memory = Bytes::gib(16);
      EXPECT_TRUE(ledger.put_card(card));
    }
  }
  void hold(const std::string& card, std::uint64_t gib, std::uint32_t compute = 1) {
    EXPECT_TRUE(ledger.add({Slice{{OwnerKind::kPod, "o" + card}, "c", CardId(card), Bytes::gib(gib),
                                  CoreShare(compute)}}));
  }
  /// For pods without room, as the caller has established.
  UnschedulableReason of(const std::vector<Request>& requests) {
    std::vector<PartRequest> parts;
    for (const auto& one : requests) parts.push_back({"c" + std::to_string(parts.size()), Phase::kRun, one});
    EXPECT_FALSE(place_pod(ledger, {}, {OwnerKind::kPod, "p"}, parts, kPolicies[0]));
    return unschedulable_reason_on(ledger, parts);
  }
  static Request asks(std::uint64_t gib, std::uint32_t compute = 10) {
    Request request;
    request.memory = MemoryAsk::of(Bytes::gib(gib));
    request.compute = CoreShare(compute);
    return request;
  }
  Ledger ledger;
};

TEST_F(UnschedulableReasonTest, IsTheReasonOfTheCardThatComesNearest) {
  hold("GPU-0", 14, 95);
  hold("GPU-1", 1, 95);
  EXPECT_EQ(of({asks(4)}), UnschedulableReason::kMemory) << "one lacks memory, the other compute";
  EXPECT_EQ(of({asks(2)}), UnschedulableReason::kCompute);
  EXPECT_EQ(of({whole_cards(1)}), UnschedulableReason::kNotEmpty);
  EXPECT_EQ(of({asks(17)}), UnschedulableReason::kTooSmall);
  auto other = asks(1);
  other.constraints.model = "h200";
  EXPECT_EQ(of({other}), UnschedulableReason::kModel);
  other = asks(1);
  other.constraints.cards = {CardId("GPU-9")};
  EXPECT_EQ(of({other}), UnschedulableReason::kNotNamed);
  for (const char* id : {"GPU-0", "GPU-1"}) EXPECT_TRUE(ledger.set_health(CardId(id), {false, "XID 79"}));
  EXPECT_EQ(of({asks(1)}), UnschedulableReason::kUnhealthy);
}

TEST_F(UnschedulableReasonTest, APercentageOfLessThanOneByteIsTooLarge) {
  Ledger small;
  Card card;
  card.id = CardId("GPU-0");
  card.memory = Bytes(50);
  ASSERT_TRUE(small.put_card(card));
  auto request = asks(1);
  request.memory = MemoryAsk::of_percent(1);
  EXPECT_EQ(unschedulable_reason_on(small, {{"c", Phase::kRun, request}}), UnschedulableReason::kTooSmall);
  card.memory = Bytes::mib(50);
  ASSERT_TRUE(small.put_card(card));
  for (const std::uint64_t mib : {1, 50}) {
    request.memory = MemoryAsk::of(Bytes::mib(mib));
    EXPECT_TRUE(place_pod(small, {}, {OwnerKind::kPod, "p"}, {{"c", Phase::kRun, request}}, kPolicies[0])) << mib;
  }
  request.memory = MemoryAsk::of(Bytes::mib(51));
  EXPECT_EQ(unschedulable_reason_on(small, {{"c", Phase::kRun, request}}), UnschedulableReason::kTooSmall);
}

TEST_F(UnschedulableReasonTest, IsTooFewWhereNoCardIsRefused) {
  EXPECT_EQ(of({whole_cards(3)}), UnschedulableReason::kTooFew);
  EXPECT_EQ(of({whole_cards(1), whole_cards(2)}), UnschedulableReason::kTooFew) << "enough for each, not for both";
  EXPECT_EQ(unschedulable_reason_on({}, {{"c", Phase::kRun, asks(1)}}), UnschedulableReason::kTooFew);
}

TEST_F(UnschedulableReasonTest, IsTheReasonOfTheContainerWithoutACard) {
  hold("GPU-0", 1);
  hold("GPU-1", 1);
  EXPECT_EQ(of({asks(1), whole_cards(1)}), UnschedulableReason::kNotEmpty);
}

TEST(UnschedulableReasonWords, ExistForEachReason) {
  EXPECT_EQ(std::set(kUnschedulableWords.begin(), kUnschedulableWords.end()).size(), kUnschedulableReasons);
  EXPECT_EQ(static_cast<std::size_t>(UnschedulableReason::kConflictingPlugin) + 1, kUnschedulableReasons);
  EXPECT_EQ(kUnschedulableWords[static_cast<std::size_t>(UnschedulableReason::kTooFew)], "too_few");
}

}  // namespace
}  // namespace carve
