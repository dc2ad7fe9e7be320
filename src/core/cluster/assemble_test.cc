#include "core/cluster/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace carve {
namespace {

using testing::HasSubstr;

Card card(const std::string& id, std::uint64_t gib = 16) {
  Card made;
  made.id = CardId(id);
  made.model = "NVIDIA T4";
  made.memory = Bytes::gib(gib);
  return made;
}

Booking booking(const std::string& uid, const std::string& on, std::uint64_t gib, std::uint64_t epoch = 1) {
  const Owner owner{OwnerKind::kPod, uid};
  return {owner, {Slice{owner, "c", CardId(on), Bytes::gib(gib), CoreShare(1)}}, epoch, false, false};
}

NodeParts parts(std::vector<Booking> bookings) { return {{card("GPU-0"), card("GPU-1")}, {}, {}, std::move(bookings)}; }

TEST(Assemble, ABookingThatFitsIsBookedRegardlessOfItsSource) {
  auto claim = booking("c", "GPU-0", 4);
  claim.owner.kind = claim.slices[0].owner.kind = OwnerKind::kClaim;
  claim.prepared = true;
  auto reserved = booking("r", "GPU-1", 1);
  reserved.reserved = true;
  const auto made = assemble(parts({booking("a", "GPU-0", 8), claim, reserved}));
  EXPECT_TRUE(made.conflicts.empty());
  EXPECT_EQ(made.state.ledger.find(CardId("GPU-0"))->use.memory, Bytes::gib(12));
  EXPECT_EQ(made.state.reserved, std::vector<Owner>{reserved.owner});
  EXPECT_TRUE(made.state.ledger.audit());
}

TEST(Assemble, APreparedBookingIsKeptAndTheOlderEpochConflicts) {
  auto running = booking("z", "GPU-0", 8, 1);
  running.prepared = true;
  const auto made = assemble(parts({booking("late", "GPU-0", 8, 2), running, booking("new", "GPU-0", 8, 3)}));
  ASSERT_EQ(made.conflicts.size(), 1U);
  EXPECT_EQ(made.conflicts[0].owner.uid, "late");
  EXPECT_EQ(made.conflicts[0].card, CardId("GPU-0"));
  const Ledger& ledger = made.state.ledger;
  EXPECT_EQ(ledger.slices_of(running.owner).size(), 1U);
  EXPECT_THAT(ledger.find(CardId("GPU-0"))->card.closed, HasSubstr("late"));
  EXPECT_TRUE(ledger.find(CardId("GPU-1"))->card.closed.empty());
  EXPECT_TRUE(ledger.audit());
}

TEST(Assemble, AClosedCardTakesNoNewSlice) {
  auto made = assemble(parts({booking("a", "GPU-0", 12), booking("b", "GPU-0", 12), booking("c", "GPU-1", 15)}));
  ASSERT_EQ(made.conflicts.size(), 1U);
  Request request;
  request.memory = MemoryAsk::of(Bytes::gib(2));
  request.compute = CoreShare(1);
  const auto placed = place(made.state.ledger, {}, request, kPolicies[0]);
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code, Code::kResourceExhausted);
  EXPECT_THAT(placed.error().what, HasSubstr("was placed on it and does not fit"));
  EXPECT_EQ(made.state.ledger.add(booking("d", "GPU-0", 2).slices).error().code, Code::kUnavailable);
}

TEST(Assemble, AnUnknownCardIsAConflictAndTheOtherCardsAreBooked) {
  auto two = booking("a", "GPU-0", 2);
  two.slices.push_back(two.slices[0]);
  two.slices[1].card = CardId("GPU-9");
  const auto made = assemble(parts({two}));
  ASSERT_EQ(made.conflicts.size(), 1U);
  EXPECT_EQ(made.conflicts[0].card, CardId("GPU-9"));
  EXPECT_EQ(made.state.ledger.slices_of(two.owner).size(), 1U);
}

TEST(Assemble, ACardThatIsNotLegalIsAConflict) {
  const auto made = assemble({{card("GPU-0"), card("GPU-1", 0)}, {}, {}, {}});
  ASSERT_EQ(made.conflicts.size(), 1U);
  EXPECT_EQ(made.conflicts[0].card, CardId("GPU-1"));
  EXPECT_THAT(made.conflicts[0].why, HasSubstr("a card has memory"));
  EXPECT_EQ(made.state.ledger.cards().size(), 1U);
}

/// All bookings are added in one call where all of them fit. The result equals that of adding them one by one.
TEST(Assemble, AddingInOneCallEqualsAddingOneByOne) {
  std::mt19937 random(11);
  int together = 0;
  for (int round = 0; round < 300; ++round) {
    auto cards = parts({});
    Ledger one_by_one;
    for (const auto& one : cards.cards) EXPECT_TRUE(one_by_one.put_card(one));
    bool fits = true;
    for (int i = 0; i < 6; ++i) {
      auto one = booking("u" + std::to_string(random() % 5), random() % 2 == 0 ? "GPU-0" : "GPU-1", 1 + random() % 9);
      if (std::any_of(cards.bookings.begin(), cards.bookings.end(),
                      [&](const Booking& other) { return other.owner == one.owner; }))
        continue;
      one.slices.push_back(one.slices[0]);
      one.slices[1].part = "init";
      one.slices[1].phase = Phase::kInit;
      fits = one_by_one.add(one.slices).has_value() && fits;
      cards.bookings.push_back(std::move(one));
    }
    std::shuffle(cards.bookings.begin(), cards.bookings.end(), random);
    const auto made = assemble(cards);
    EXPECT_EQ(made.conflicts.empty(), fits);
    if (fits) {
      EXPECT_EQ(made.state.ledger, one_by_one);
    }
    together += fits ? 1 : 0;
  }
  EXPECT_GT(together, 30);
  EXPECT_LT(together, 290);
}

TEST(Assemble, TheOrderOfThePartsDoesNotMatter) {
  std::mt19937 random(7);
  std::vector<Booking> all;
  for (int i = 0; i < 24; ++i) {
    all.push_back(booking("u" + std::to_string(i), i % 3 == 0 ? "GPU-0" : "GPU-1",
                          static_cast<std::uint64_t>(1 + i % 5), static_cast<std::uint32_t>(i % 4)));
    all.back().prepared = i % 7 == 0;
  }
  const auto first = assemble(parts(all));
  EXPECT_FALSE(first.conflicts.empty());
  for (int round = 0; round < 50; ++round) {
    std::shuffle(all.begin(), all.end(), random);
    const auto again = assemble(parts(all));
    EXPECT_EQ(again.state, first.state);
    EXPECT_EQ(again.conflicts, first.conflicts);
    EXPECT_TRUE(again.state.ledger.audit());
  }
}

}  // namespace
}  // namespace carve
