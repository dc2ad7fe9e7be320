#include "app/plugins/full_cards.h"

#include <gtest/gtest.h>

#include "app/plugins/publish.h"
#include "app/plugins/testing/fake_node_slices.h"

namespace carve::plugins {
namespace {

class FullCardsTest : public ::testing::Test {
 protected:
  Slice slice(OwnerKind kind, const std::string& uid, std::uint64_t gib, std::uint32_t compute = 10) {
    Slice one;
    one.owner = {kind, uid};
    one.part = "g";
    one.card = inventory.cards.at(0).id;
    one.memory = Bytes::gib(gib);
    one.compute = CoreShare(compute);
    return one;
  }
  bool full(const std::vector<Slice>& held) { return !cards.cards(held, inventory, clock.now()).empty(); }
  void refuse(const Slice& asked, const std::vector<Slice>& held) {
    cards.refused({asked}, held, inventory, clock.now());
  }
  ManualClock clock;
  GpuInventory inventory = some_cards(2);  // of 80 GiB
  FullCards cards;
};

TEST_F(FullCardsTest, ACardThatRefusedAClaimIsFullUntilThereIsRoom) {
  const auto pod = slice(OwnerKind::kPod, "p", 50);
  refuse(slice(OwnerKind::kClaim, "c", 40), {pod});
  EXPECT_EQ(cards.cards({pod}, inventory, clock.now()), std::set{inventory.cards[0].id});
  EXPECT_FALSE(full({}));
  EXPECT_FALSE(full({pod})) << "forgotten: the next refusal reports it again";
}

TEST_F(FullCardsTest, TheSmallestRefusedClaimCounts) {
  const auto pod = slice(OwnerKind::kPod, "p", 70);
  refuse(slice(OwnerKind::kClaim, "c", 40), {pod});
  refuse(slice(OwnerKind::kClaim, "d", 20), {pod});
  EXPECT_TRUE(full({slice(OwnerKind::kPod, "p", 61)}));
  EXPECT_FALSE(full({slice(OwnerKind::kPod, "p", 60)}));
}

TEST_F(FullCardsTest, ComputeAndWholeCardsCountToo) {
  const auto busy = slice(OwnerKind::kPod, "p", 1, 80);
  refuse(slice(OwnerKind::kClaim, "c", 1, 30), {busy});
  EXPECT_TRUE(full({busy}));
  auto whole = slice(OwnerKind::kPod, "q", 1);
  whole.exclusive = true;
  refuse(slice(OwnerKind::kClaim, "c", 1), {whole});
  EXPECT_TRUE(full({whole}));
  EXPECT_FALSE(full({}));
}

TEST_F(FullCardsTest, ACardWithoutAFreeSliceNumberIsFull) {
  std::vector<Slice> held;
  for (std::uint32_t i = 0; i < kMaxSlicesPerCard; ++i)
    held.push_back(slice(OwnerKind::kPod, std::to_string(i), 0, 0));
  refuse(slice(OwnerKind::kClaim, "c", 1), held);
  EXPECT_TRUE(full(held));
  held.pop_back();
  EXPECT_FALSE(full(held));
}

TEST_F(FullCardsTest, AnUnhealthyCardHasNoRoom) {
  const auto pod = slice(OwnerKind::kPod, "p", 50);
  refuse(slice(OwnerKind::kClaim, "c", 40), {pod});
  inventory.cards[0].health = {false, "XID 79"};
  EXPECT_TRUE(full({}));
  inventory.cards[0].health = {};
  EXPECT_FALSE(full({}));
}

TEST_F(FullCardsTest, ARefusalThatIsNotRepeatedIsForgotten) {
  const auto pod = slice(OwnerKind::kPod, "p", 80);
  refuse(slice(OwnerKind::kClaim, "c", 40), {pod});
  clock.advance(FullCards::kForget / 2);
  refuse(slice(OwnerKind::kClaim, "c", 40), {pod});
  clock.advance(FullCards::kForget - std::chrono::seconds(1));
  EXPECT_TRUE(full({pod}));
  clock.advance(std::chrono::seconds(1));
  EXPECT_FALSE(full({pod}));
}

TEST_F(FullCardsTest, AFullCardIsPublishedWithATaintOfItsOwn) {
  const auto devices = devices_of(inventory, {{}, {inventory.cards[1].id}});
  EXPECT_TRUE(devices.at(0).taints.empty());
  ASSERT_EQ(devices.at(1).taints.size(), 1U);
  EXPECT_EQ(devices.at(1).taints[0].key, "gpu.elasticgpu.io/full");
  EXPECT_EQ(devices.at(1).taints[0].effect, "NoSchedule");
}

}  // namespace
}  // namespace carve::plugins
