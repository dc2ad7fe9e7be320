#include "core/cluster/nominated_reservation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace carve {
namespace {

const Owner kPreemptor{OwnerKind::kPod, "preemptor"};
const Owner kOther{OwnerKind::kPod, "other"};

Slice slice(const std::string& uid, std::uint64_t gib, std::uint32_t compute, const std::string& card = "GPU-0") {
  Slice made;
  made.owner = {OwnerKind::kPod, uid};
  made.part = "c";
  made.card = CardId(card);
  made.memory = Bytes::gib(gib);
  made.compute = CoreShare(compute);
  return made;
}

class NominatedReservationTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"GPU-0", "GPU-1"}) {
      Card card;
      card.id = CardId(id);
      card.model = "NVIDIA T4";
      card.memory = Bytes::gib(16);
      ASSERT_TRUE(ledger.put_card(card));
    }
  }
  /// What is free on GPU-0 for that owner: GiB and hundredths of compute.
  std::pair<std::uint64_t, std::uint32_t> left(const Owner& owner, std::int32_t priority,
                                               const NominatedReservation& hold) {
    const Ledger seen = seen_by(owner, priority, ledger, {hold});
    EXPECT_TRUE(seen.audit());
    const CardState& card = *seen.find(CardId("GPU-0"));
    return {card.free_memory().count() >> 30, card.free_compute().hundredths()};
  }
  Ledger ledger;
};

TEST_F(NominatedReservationTest, CountsAsTheLargerOfThePreemptorsAndTheVictimsSlices) {
  ASSERT_TRUE(ledger.add({slice("stays", 4, 10)}));
  ASSERT_TRUE(ledger.add({slice("v1", 5, 20)}));
  ASSERT_TRUE(ledger.add({slice("v2", 3, 50), slice("v2", 7, 10, "GPU-1")}));
  const NominatedReservation hold{
      kPreemptor, 5, {slice("preemptor", 10, 60)}, {{OwnerKind::kPod, "v1"}, {OwnerKind::kPod, "v2"}}};
  EXPECT_EQ(left(kOther, 5, hold), std::pair(2UL, 20U)) << "10 GiB of the 8 + 4; compute 70 of the victims";
  EXPECT_EQ(left(kOther, 6, hold), std::pair(4UL, 20U)) << "a higher priority is not kept out";
  EXPECT_EQ(left(kPreemptor, 5, hold), std::pair(4UL, 20U)) << "the preemptor is not kept out";
  const Ledger seen = seen_by(kOther, 0, ledger, {hold});
  EXPECT_EQ(*seen.find(CardId("GPU-1")), *ledger.find(CardId("GPU-1"))) << "a card without a reservation";
  ledger.remove_owner({OwnerKind::kPod, "v1"});
  ledger.remove_owner({OwnerKind::kPod, "v2"});
  EXPECT_EQ(left(kOther, 0, hold), std::pair(2UL, 30U)) << "the victims are gone; the preemptor's part stays";
}

TEST_F(NominatedReservationTest, AWholeCardIsKeptWhole) {
  Slice whole = slice("preemptor", 16, 100);
  whole.exclusive = whole.whole = true;
  ASSERT_TRUE(ledger.add({slice("v1", 1, 1)}));
  ASSERT_TRUE(ledger.add({slice("v2", 1, 1)}));
  const NominatedReservation hold{kPreemptor, 5, {whole}, {{OwnerKind::kPod, "v1"}, {OwnerKind::kPod, "v2"}}};
  EXPECT_EQ(left(kOther, 5, hold), std::pair(0UL, 0U));
  const std::vector<Slice> kept = seen_by(kOther, 5, ledger, {hold}).find(CardId("GPU-0"))->slices;
  EXPECT_TRUE(std::any_of(kept.begin(), kept.end(), [](const Slice& one) { return one.whole; }));
  EXPECT_EQ(left(kOther, 6, hold), std::pair(14UL, 98U));
}

TEST_F(NominatedReservationTest, ACardThatAnotherOwnerTookIsShownAsItIs) {
  ASSERT_TRUE(ledger.add({slice("v1", 2, 1)}));
  ASSERT_TRUE(ledger.add({slice("higher", 12, 1)}));
  const NominatedReservation hold{kPreemptor, 5, {slice("preemptor", 10, 60)}, {{OwnerKind::kPod, "v1"}}};
  EXPECT_EQ(seen_by(kOther, 0, ledger, {hold}), ledger);
}

TEST_F(NominatedReservationTest, SlicesThatAreBoundMeanwhileAreNotCountedTwice) {
  ASSERT_TRUE(ledger.add({slice("preemptor", 10, 60)}));
  const NominatedReservation hold{kPreemptor, 5, {slice("preemptor", 10, 60)}, {}};
  EXPECT_EQ(left(kOther, 0, hold), std::pair(6UL, 40U));
}

}  // namespace
}  // namespace carve
