#include "core/ledger/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/record.h"

namespace carve {
namespace {

using testing::HasSubstr;

const CardId kA("GPU-a");
const CardId kB("GPU-b");

Ledger two_cards() {
  Ledger ledger;
  for (const CardId& id : {kA, kB}) {
    Card card;
    card.id = id;
    card.memory = Bytes::gib(16);
    EXPECT_TRUE(ledger.put_card(card));
  }
  return ledger;
}

Slice slice(const std::string& uid, const std::string& part, const CardId& card, std::uint64_t gib,
            std::uint32_t compute) {
  Slice s;
  s.owner = Owner{OwnerKind::kPod, uid};
  s.part = part;
  s.card = card;
  s.memory = Bytes::gib(gib);
  s.compute = CoreShare(compute);
  if (compute == 0) s.share = ShareClass::kBestEffort;
  return s;
}

TEST(Ledger, ARefusalHasTheNumbersAndChangesNothing) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 13, 80)}));
  const Ledger before = ledger;
  const auto refused = ledger.add({slice("y", "c", kB, 1, 10), slice("y", "c", kA, 4, 30)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().what, "GPU-a: 3 GiB free < 4 GiB; compute 20 free < 30");
  EXPECT_EQ(ledger, before);
}

TEST(Ledger, IsEqualOnlyToOneWithTheSameSlices) {
  Ledger one = two_cards();
  Ledger other = two_cards();
  EXPECT_EQ(one, other);
  ASSERT_TRUE(one.add({slice("u1", "main", kA, 4, 30)}));
  EXPECT_FALSE(one == other);
  ASSERT_TRUE(other.add({slice("u1", "main", kA, 4, 30)}));
  EXPECT_EQ(one, other);
}

TEST(Ledger, RefusesMoreSlicesThanTheArbitersTableHolds) {
  Ledger ledger = two_cards();
  const auto tiny = [](std::uint32_t number, const CardId& card) {
    Slice s = slice("o" + std::to_string(number), "c", card, 1, 0);
    s.memory = Bytes::mib(1);
    return s;
  };
  for (std::uint32_t i = 0; i < kMaxSlicesPerCard; ++i) ASSERT_TRUE(ledger.add({tiny(i, kA)})) << i;
  const auto refused = ledger.add({tiny(kMaxSlicesPerCard, kB), tiny(kMaxSlicesPerCard, kA)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_EQ(refused.error().what, "GPU-a: 128 slices are on it, a card has at most 128");
  EXPECT_TRUE(ledger.add({tiny(kMaxSlicesPerCard, kB)})) << "the other card is not full";
  EXPECT_TRUE(ledger.replace(tiny(0, kA).owner, "c", {tiny(0, kA)})) << "a booked slice can be replaced";
  EXPECT_TRUE(ledger.add({tiny(kMaxSlicesPerCard, kA)}, Ledger::Admission::kRestored)) << "existing slices are booked";
  EXPECT_TRUE(ledger.remove(tiny(1, kA).owner, "c")) << "and can be removed";
}

TEST(Ledger, ACardCanBeFilledToTheLastByteAndTheLastHundredth) {
  const auto with = [](Bytes memory, std::uint32_t compute) {
    Slice one = slice("y", "c", kA, 1, compute);
    one.memory = memory;
    return one;
  };
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 13, 80)}));
  const Bytes left = Bytes::gib(3);
  EXPECT_EQ(ledger.add({with(left + Bytes(1), 20)}).error().code, Code::kResourceExhausted);
  EXPECT_EQ(ledger.add({with(left, 21)}).error().code, Code::kResourceExhausted);
  ASSERT_TRUE(ledger.add({with(left, 20)}));
  EXPECT_TRUE(ledger.audit());
  EXPECT_EQ(ledger.find(kA)->free_memory(), Bytes(0));
  EXPECT_EQ(ledger.find(kA)->free_compute(), CoreShare(0));
  Card card = ledger.find(kA)->card;
  EXPECT_TRUE(ledger.put_card(card)) << "its slices hold exactly its size";
  card.memory = card.memory - Bytes(1);
  EXPECT_EQ(ledger.put_card(card).error().code, Code::kFailedPrecondition);
}

TEST(Ledger, ARefusalListsTheCardsInTheirOrder) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kB, 1, 1), slice("x", "c", kA, 1, 1)}));
  const std::string both = "GPU-a: 15 GiB free < 16 GiB; GPU-b: 15 GiB free < 16 GiB";
  EXPECT_EQ(ledger.add({slice("y", "c", kB, 16, 1), slice("y", "c", kA, 16, 1)}).error().what, both);
  EXPECT_EQ(ledger.add({slice("y", "c", kA, 16, 1), slice("y", "c", kB, 16, 1)}).error().what, both);
}

TEST(Ledger, RejectsACardWithoutMemoryOrWithPartialCompute) {
  Ledger ledger;
  Card card;
  card.id = kA;
  EXPECT_EQ(ledger.put_card(card).error().code, Code::kInvalidArgument) << "no memory";
  card.memory = Bytes(1);
  card.compute = CoreShare(99);
  EXPECT_EQ(ledger.put_card(card).error().code, Code::kInvalidArgument) << "not all compute";
  card.compute = CoreShare::whole();
  EXPECT_TRUE(ledger.put_card(card));
  card.id = CardId("a b");
  EXPECT_EQ(ledger.put_card(card).error().code, Code::kInvalidArgument) << "no UUID";
}

TEST(Ledger, BesteffortSetsNoComputeAside) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 1, 100)}));
  Slice wish = slice("y", "c", kA, 1, 50);
  wish.share = ShareClass::kBestEffort;
  ASSERT_TRUE(ledger.add({wish}));
  EXPECT_EQ(ledger.find(kA)->use.compute, CoreShare(100));
}

TEST(Ledger, IdentityIsTheOwnersUidAndThePart) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 1, 1)}));
  EXPECT_EQ(ledger.add({slice("x", "c", kA, 1, 1)}).error().code, Code::kAlreadyExists);
  EXPECT_TRUE(ledger.add({slice("x", "d", kA, 1, 1)}));
  EXPECT_TRUE(ledger.add({slice("z", "c", kA, 1, 1)}));
  Slice claim = slice("x", "c", kA, 1, 1);
  claim.owner.kind = OwnerKind::kClaim;
  EXPECT_TRUE(ledger.add({claim}));
  EXPECT_TRUE(ledger.remove(Owner{OwnerKind::kPod, "x"}, "c"));
  EXPECT_EQ(ledger.remove(Owner{OwnerKind::kPod, "x"}, "c").error().code, Code::kNotFound);
  EXPECT_EQ(ledger.find(kA)->use.memory, Bytes::gib(3));
}

TEST(Ledger, AnInitContainerCountsOnlyAboveTheSumOfTheRunContainers) {
  Ledger ledger = two_cards();
  Slice init = slice("x", "init", kA, 6, 60);
  init.phase = Phase::kInit;
  Slice second = slice("x", "init2", kA, 5, 90);
  second.phase = Phase::kInit;
  ASSERT_TRUE(ledger.add({init, second, slice("x", "c", kA, 4, 30), slice("x", "d", kA, 4, 30)}));
  EXPECT_EQ(ledger.find(kA)->use.memory, Bytes::gib(8));
  EXPECT_EQ(ledger.find(kA)->use.compute, CoreShare(90));
  EXPECT_EQ(ledger.find(kA)->use.owners, 1u);
  ASSERT_TRUE(ledger.remove(Owner{OwnerKind::kPod, "x"}, "init2"));
  EXPECT_EQ(ledger.find(kA)->use.compute, CoreShare(60));
  EXPECT_TRUE(ledger.add({slice("y", "c", kA, 8, 40)})) << "only the maximum is booked";
}

TEST(Ledger, AnExclusivelyHeldCardTakesNoOtherOwner) {
  Ledger ledger = two_cards();
  Slice alone = slice("x", "c", kA, 1, 10);
  alone.exclusive = true;
  ASSERT_TRUE(ledger.add({alone}));
  const auto refused = ledger.add({slice("y", "c", kA, 1, 1)});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what, HasSubstr("x/c needs the card exclusively"));
  EXPECT_EQ(ledger.find(kA)->free_memory(), Bytes(0));
  alone.owner.uid = "z";
  alone.card = kB;
  ASSERT_TRUE(ledger.add({slice("y", "c", kB, 1, 1)}));
  EXPECT_EQ(ledger.add({alone}).error().code, Code::kResourceExhausted);
}

TEST(Ledger, ReplaceMayUseWhatItFreesAndIsAllOrNothing) {
  Ledger ledger = two_cards();
  const Owner x{OwnerKind::kPod, "x"};
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 12, 60)}));
  ASSERT_TRUE(ledger.replace(x, "c", {slice("x", "c", kA, 16, 100)}));
  EXPECT_EQ(ledger.find(kA)->use.memory, Bytes::gib(16));
  const Ledger before = ledger;
  EXPECT_FALSE(ledger.replace(x, "c", {slice("x", "c", kA, 17, 100)}));
  EXPECT_FALSE(ledger.replace(x, "c", {slice("y", "c", kA, 1, 1)}));
  EXPECT_EQ(ledger, before);
  ASSERT_TRUE(ledger.replace(x, "c", {slice("x", "c", kB, 16, 100)}));
  EXPECT_EQ(ledger.find(kA)->use, CardUse{});
}

TEST(Ledger, AnUnhealthyCardTakesOnlyRestoredSlices) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.set_health(kA, Health{false, "XID 79"}));
  EXPECT_EQ(ledger.add({slice("x", "c", kA, 1, 1)}).error().code, Code::kUnavailable);
  EXPECT_TRUE(ledger.add({slice("x", "c", kA, 1, 1)}, Ledger::Admission::kRestored));
  ASSERT_TRUE(ledger.set_health(kA, Health{}));
  EXPECT_TRUE(ledger.add({slice("y", "c", kA, 1, 1)}));
}

TEST(Ledger, WhatSlicesHoldAboveTheirLimitsIsNotFree) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 4, 1)}));
  ledger.set_beyond(kA, Bytes::gib(3));
  ledger.set_beyond(CardId("GPU-none"), Bytes::gib(3));
  EXPECT_EQ(ledger.find(kA)->free_memory(), Bytes::gib(9));
  EXPECT_EQ(ledger.find(kB)->free_memory(), Bytes::gib(16));
  ledger.set_beyond(kA, Bytes());
  EXPECT_EQ(ledger.find(kA)->free_memory(), Bytes::gib(12));
}

TEST(Ledger, SlicesAreFoundByOwnerAndPart) {
  Ledger ledger = two_cards();
  const Slice first = slice("x", "c", kA, 1, 1);
  const Slice second = slice("x", "c", kB, 1, 1);
  const Slice other = slice("x", "d", kB, 1, 1);
  const Slice foreign = slice("y", "c", kA, 1, 1);
  ASSERT_TRUE(ledger.add({first, second, other, foreign}));
  const Owner x{OwnerKind::kPod, "x"};
  EXPECT_EQ(ledger.slices_of(x, "c"), (std::vector<Slice>{first, second}));
  EXPECT_EQ(ledger.slices_of(x, "e"), std::vector<Slice>());
  EXPECT_EQ(ledger.slices_of(x).size(), 3u);
  EXPECT_EQ(ledger.slices().size(), 4u);
  EXPECT_TRUE(ledger.audit());
}

TEST(Ledger, ACardInUseCannotBeRemovedOrShrunkBelowItsUse) {
  Ledger ledger = two_cards();
  ASSERT_TRUE(ledger.add({slice("x", "c", kA, 4, 1)}));
  EXPECT_EQ(ledger.remove_card(kA).error().code, Code::kFailedPrecondition);
  Card smaller = ledger.find(kA)->card;
  smaller.memory = Bytes::gib(3);
  EXPECT_EQ(ledger.put_card(smaller).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(ledger.remove_owner(Owner{OwnerKind::kPod, "x"}), 1u);
  EXPECT_TRUE(ledger.put_card(smaller));
  EXPECT_TRUE(ledger.remove_card(kA));
  EXPECT_EQ(ledger.cards().size(), 1u);
  EXPECT_EQ(ledger.find(kA), nullptr);
  ASSERT_TRUE(ledger.put_card(smaller));
  EXPECT_TRUE(ledger.remove_card(kB)) << "the last one of two";
  ASSERT_EQ(ledger.cards().size(), 1u);
  EXPECT_EQ(ledger.cards()[0].card.id, kA);
}

TEST(Ledger, AWholeSliceCoversTheCardEvenAfterTheDriverReportsAnotherSize) {
  Slice whole = slice("x", "c", kA, 16, 100);
  whole.whole = whole.exclusive = true;
  Ledger ledger = two_cards();
  Card smaller = ledger.find(kA)->card;
  smaller.memory = Bytes::gib(16) - Bytes::mib(3);
  ASSERT_TRUE(ledger.put_card(smaller));
  ASSERT_TRUE(ledger.add({whole}, Ledger::Admission::kRestored));
  EXPECT_EQ(ledger.find(kA)->use.memory, smaller.memory);
  smaller.memory = Bytes::gib(15);
  ASSERT_TRUE(ledger.put_card(smaller));
  EXPECT_EQ(ledger.find(kA)->use.memory, Bytes::gib(15));
  EXPECT_TRUE(ledger.audit());
}

TEST(Ledger, IllegalSlicesAndCardsAreRefused) {
  Ledger ledger = two_cards();
  EXPECT_EQ(ledger.add({slice("x", "c", CardId("GPU-z"), 1, 1)}).error().code, Code::kNotFound);
  EXPECT_EQ(ledger.add({slice("", "c", kA, 1, 1)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(ledger.add({slice("x", "c", kA, 0, 1)}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(ledger.add({slice("x", "c", kA, 1, 101)}).error().code, Code::kInvalidArgument);
  Slice huge = slice("x", "c", kA, 1, 1);
  huge.memory = Bytes::max();
  EXPECT_EQ(ledger.add({huge}).error().code, Code::kResourceExhausted);
  EXPECT_FALSE(ledger.put_card(Card{}));
  EXPECT_EQ(ledger.slices().size(), 0u);
}

/// The ledger checks a slice without building a record, by the same rules.
TEST(Ledger, AcceptsExactlyTheSlicesThatARecordAccepts) {
  const std::vector<std::string> names = {"", "ok", "a b", std::string(253, 'a'), std::string(254, 'a')};
  std::size_t legal = 0;
  std::size_t all = 0;
  for (int bits = 0; bits < 32; ++bits) {
    for (const std::uint32_t compute : {0U, 50U, 100U, 101U}) {
      for (std::size_t at = 0; at < 3 * names.size(); ++at) {
        Slice one = slice("u", "c", kA, 1, compute);
        if ((bits & 1) != 0) one.memory = Bytes();
        one.exclusive = (bits & 2) != 0;
        one.whole = (bits & 4) != 0;
        one.share = (bits & 8) != 0 ? ShareClass::kBestEffort : ShareClass::kBurst;
        if ((bits & 16) != 0) one.phase = Phase::kInit;
        (at % 3 == 0 ? one.owner.uid : at % 3 == 1 ? one.part : one.dialect) = names[at / 3];
        Ledger ledger = two_cards();
        const auto added = ledger.add({one});
        const auto record = record_of(0, {one});
        ASSERT_EQ(added.has_value(), record.has_value());
        if (!record) {
          ASSERT_EQ(added.error().what, record.error().what);
        }
        legal += record ? 1 : 0;
        ++all;
      }
    }
  }
  EXPECT_GT(legal, 100U);
  EXPECT_GT(all - legal, 100U);
}

TEST(Ledger, SlicesOfAPartAreFoundByOwnerAndName) {
  Ledger ledger = two_cards();
  const Slice own = slice("x", "c", kA, 1, 1);
  ASSERT_TRUE(ledger.add({own, slice("x", "d", kA, 1, 1), slice("y", "c", kB, 1, 1)}));
  EXPECT_EQ(ledger.slices_of(own.owner, "c"), std::vector<Slice>{own});
  EXPECT_EQ(ledger.slices_of(own.owner).size(), 2U);
  EXPECT_TRUE(ledger.slices_of(own.owner, "e").empty());
}

}  // namespace
}  // namespace carve
