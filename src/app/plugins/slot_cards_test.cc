#include "app/plugins/slot_cards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "app/plugins/device_names.h"
#include "app/plugins/node_pods.h"
#include "app/plugins/slice_publisher.h"
#include "app/plugins/testing/fake_node_slices.h"
#include "app/plugins/testing/pod_object.h"
#include "app/plugins/testing/small_kube.h"
#include "base/clock.h"
#include "codec/record.h"
#include "core/model/record.h"

namespace carve::plugins {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Slice slice_of(OwnerKind kind, const std::string& uid, const std::string& part, const CardId& card) {
  Slice slice;
  slice.owner = {kind, uid};
  slice.part = part;
  slice.card = card;
  slice.memory = Bytes::gib(20);
  slice.compute = CoreShare(20);
  return slice;
}

TEST(SlotCards, IncludeCardsOfContainersThatHoldNoSliceYet) {
  const auto cards = some_cards(3).cards;
  const auto first = slice_of(OwnerKind::kPod, "u", "first", cards[0].id);
  const auto main = slice_of(OwnerKind::kPod, "u", "main", cards[1].id);
  codec::NodePod pod;
  pod.uid = "u";
  pod.record = *codec::encode_record(*record_of(1, {first, main}));
  EXPECT_THAT(cards_of_slots({first}, {pod}), ElementsAre(cards[0].id, cards[1].id));
  pod.ended = true;
  EXPECT_THAT(cards_of_slots({first}, {pod}), ElementsAre(cards[0].id)) << "an ended pod gets no further slices";
  pod.uid = "another";
  pod.ended = false;
  EXPECT_THAT(cards_of_slots({}, {pod}), IsEmpty()) << "a record of another pod promises nothing";
}

TEST(SlotCards, KeepACardWhilePodsFollowEachOtherOnIt) {
  const auto cards = some_cards(2).cards;
  SlotCards slots;
  const Clock::Time begun{};
  EXPECT_THAT(slots.step({cards[0].id}, begun), ElementsAre(cards[0].id));
  EXPECT_THAT(slots.step({}, begun + SlotCards::kLonger), ElementsAre(cards[0].id));
  EXPECT_THAT(slots.step({cards[0].id, cards[1].id}, begun + 2 * SlotCards::kLonger),
              ElementsAre(cards[0].id, cards[1].id));
  EXPECT_THAT(slots.step({cards[1].id}, begun + 3 * SlotCards::kLonger + std::chrono::seconds(1)),
              ElementsAre(cards[1].id));
}

/// A node's ResourceSlices on an API server that counts versions and keeps or drops taints.
struct OfferedCards : testing::Test {
  FakeNodeSlices slices{some_cards(2)};
  SmallKube kube;
  Log log{[](std::string_view) {}};
  NodePods pods{"n1", kube};
  std::map<CardId, CardMode> modes;
  bool known = true;
  bool awaited = false;
  bool keeps_taints = true;
  std::string written;  // the server's answer to the last write
  int version = 0;
  SlicePublisher offered{"n1",
                         slices,
                         kube,
                         log,
                         [] { return true; },
                         {},
                         [this] {
                           return OfferLimits{cards_of_slots(slices.held(), pods.all()), {}, modes, known, awaited};
                         }};
  CardId first = slices.cards().cards[0].id;

  void SetUp() override {
    kube.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1","uid":"node-uid"}})");
    kube.answer = [this](const std::string&, const std::string& body) {
      auto slice = *codec::parse_slice(body);
      slice.version = std::to_string(++version);
      for (auto& device : slice.devices) {
        if (!keeps_taints) device.taints.clear();
      }
      return written = codec::encode_slice(slice, "");
    };
  }
  /// Whether kube-scheduler may allocate this card to a claim, by the API server's current object.
  bool claimable(std::size_t card) {
    EXPECT_TRUE(offered.reconcile());
    return codec::parse_slice(written)->devices.at(card).taints.empty();
  }
  std::int64_t generation() { return codec::parse_slice(written)->generation; }
  void holds(const Slice& slice) {
    ASSERT_TRUE(slices.prepare({*record_of(0, {slice}), slice.part, "", "s/p/c", {slice.owner.uid}}));
  }
};

TEST_F(OfferedCards, ACardOfARecordIsNotOfferedToClaimsUntilItIsFree) {
  offered.replace({});
  ASSERT_TRUE(claimable(0));
  const auto generation_before = generation();
  const auto slice = slice_of(OwnerKind::kPod, "u", "main", first);
  const auto record = *codec::encode_record(*record_of(1, {slice}));
  pods.change({KubeChange::Kind::kPut, pod_here("u", "Pending", record_annotation(record))});
  EXPECT_FALSE(claimable(0)) << "from the binding on, before anything is prepared";
  EXPECT_TRUE(claimable(1));
  const auto device = codec::parse_slice(written)->devices[0];
  EXPECT_EQ(device.taints[0].key, kSlotsTaint);
  EXPECT_EQ(device.taints[0].effect, "NoSchedule") << "allocated claims stay";
  EXPECT_EQ(device.capacity.at("memory").value, "80Gi");
  holds(slice);
  EXPECT_FALSE(claimable(0));
  pods.change({KubeChange::Kind::kPut, pod_here("u", "Succeeded", record_annotation(record))});
  EXPECT_FALSE(claimable(0)) << "its processes still run";
  ASSERT_TRUE(slices.unprepare(slice.owner));
  EXPECT_TRUE(claimable(0));
  EXPECT_EQ(generation(), generation_before);
  EXPECT_EQ(kube.writes().size(), 3U);
}

TEST_F(OfferedCards, ANewModeOfACardIsANewGeneration) {
  offered.replace({});
  ASSERT_TRUE(claimable(0));
  const auto before = generation();
  modes[first] = CardMode::kExclusive;
  ASSERT_TRUE(offered.reconcile());
  const auto devices = codec::parse_slice(written)->devices;
  EXPECT_EQ(devices[0].capacity.at("memory").min, devices[0].capacity.at("memory").value);
  EXPECT_EQ(devices[1].capacity.at("memory").min, "1Mi");
  EXPECT_EQ(generation(), before + 1);
}

TEST_F(OfferedCards, ACardOfAClaimIsOfferedToOtherClaims) {
  offered.replace({});
  holds(slice_of(OwnerKind::kClaim, "c", "gpu", first));
  EXPECT_TRUE(claimable(0));
}

TEST_F(OfferedCards, AnUnhealthyCardThatSlotsUseHasBothTaints) {
  offered.replace({});
  holds(slice_of(OwnerKind::kPod, "u", "main", first));
  slices.set_health(0, {false, "XID 79"});
  EXPECT_FALSE(claimable(0));
  EXPECT_EQ(codec::parse_slice(written)->devices[0].taints.size(), 2U);
  slices.set_health(0, {});
  EXPECT_FALSE(claimable(0));
  EXPECT_EQ(codec::parse_slice(written)->devices[0].taints.size(), 1U);
}

TEST_F(OfferedCards, SlicesOfAPreviousAgentWithoutTaintsGetThem) {
  auto there = slices_for("n1", devices_of(slices.cards()));
  there[0].generation = 4;
  there[0].version = "0";
  holds(slice_of(OwnerKind::kPod, "u", "main", first));
  offered.replace({codec::encode_slice(there[0], "")});
  EXPECT_FALSE(claimable(0));
  EXPECT_EQ(generation(), 4);
  EXPECT_EQ(kube.writes().size(), 1U);
}

/// A starting agent does not know the pods yet. Only the taint shows a record of a pod that holds no slice.
TEST_F(OfferedCards, ATaintStaysUntilThePodsAreKnown) {
  auto there = slices_for("n1", devices_of(slices.cards(), {{first}, {}}));
  there[0].generation = 4;
  offered.replace({codec::encode_slice(there[0], "")});
  known = false;
  ASSERT_TRUE(offered.reconcile());
  EXPECT_TRUE(kube.writes().empty());
  known = true;
  EXPECT_TRUE(claimable(0));
}

/// Without existing slices there are no taints that could stay.
TEST_F(OfferedCards, NoSliceIsCreatedBeforeThePodsAreKnown) {
  offered.replace({});
  known = false;
  awaited = true;
  const auto early = offered.reconcile();
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::kUnavailable);
  EXPECT_TRUE(kube.writes().empty());
  const auto slice = slice_of(OwnerKind::kPod, "u", "main", first);
  const auto record = *codec::encode_record(*record_of(1, {slice}));
  pods.change({KubeChange::Kind::kPut, pod_here("u", "Pending", record_annotation(record))});
  known = true;
  EXPECT_FALSE(claimable(0));
}

TEST_F(OfferedCards, SlicesAreCreatedWhenThePodsAreNotAwaited) {
  offered.replace({});
  known = false;
  EXPECT_TRUE(claimable(0));
}

TEST_F(OfferedCards, AServerThatDropsTaintsGetsEachTaintOnce) {
  keeps_taints = false;
  offered.replace({});
  holds(slice_of(OwnerKind::kPod, "u", "main", first));
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(claimable(0));
    offered.change({KubeChange::Kind::kPut, written});  // the watch delivers nothing new
  }
  EXPECT_EQ(kube.writes().size(), 1U);
  slices.set_health(1, {false, "XID 79"});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(offered.reconcile());
  EXPECT_EQ(kube.writes().size(), 2U);
  // The server now keeps taints, and the watch is restarted.
  keeps_taints = true;
  offered.replace({written});
  EXPECT_FALSE(claimable(0));
  EXPECT_FALSE(claimable(1));
  EXPECT_EQ(kube.writes().size(), 3U);
  // A manual edit is still corrected.
  auto edited = *codec::parse_slice(written);
  edited.version = std::to_string(++version);
  edited.devices[0].taints.clear();
  offered.change({KubeChange::Kind::kPut, codec::encode_slice(edited, "")});
  EXPECT_FALSE(claimable(0));
}

TEST_F(OfferedCards, TheWatchMayBeBehindOurOwnWrites) {
  offered.replace({});
  EXPECT_TRUE(claimable(0));
  const auto before = written;
  const auto slice = slice_of(OwnerKind::kPod, "u", "main", first);
  holds(slice);
  EXPECT_FALSE(claimable(0));
  const auto tainted = written;
  ASSERT_TRUE(slices.unprepare(slice.owner));
  EXPECT_TRUE(claimable(0));
  for (const auto& late : {before, tainted, written}) {
    offered.change({KubeChange::Kind::kPut, late});
    ASSERT_TRUE(offered.reconcile());
  }
  EXPECT_EQ(kube.writes().size(), 3U) << "a write with an old version would be refused";
  offered.change({KubeChange::Kind::kDeleted, tainted});  // of an older object with the same name
  ASSERT_TRUE(offered.reconcile());
  EXPECT_EQ(kube.writes().size(), 3U);
}

TEST_F(OfferedCards, QuickChangesAreGatheredIntoOneWrite) {
  ManualClock clock;
  offered.replace({});
  const auto slice = slice_of(OwnerKind::kPod, "u", "main", first);
  {
    const std::jthread writer([&](const std::stop_token& stop) { offered.run_writer(clock, stop); });
    clock.wait_for_sleepers(1);  // it has written, and pauses
    ASSERT_EQ(kube.writes().size(), 1U);
    for (std::size_t round = 1; round <= 6; ++round) {
      if (round % 2 == 0) {
        ASSERT_TRUE(slices.unprepare(slice.owner));
      }
      for (int i = 0; i < 20; ++i) {
        holds(slice);
        offered.poke();
        ASSERT_TRUE(slices.unprepare(slice.owner));
        offered.poke();
      }
      if (round % 2 == 1) holds(slice);  // so that each round ends in another state than it began
      offered.poke();
      EXPECT_EQ(kube.writes().size(), round) << "it pauses";
      clock.advance(std::chrono::milliseconds(200));
      clock.wait_for_sleepers(1);
      EXPECT_EQ(kube.writes().size(), round + 1) << "one write for all changes";
    }
  }
  EXPECT_TRUE(claimable(0));
}

}  // namespace
}  // namespace carve::plugins
