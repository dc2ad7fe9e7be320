#include "app/plugins/publish.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/plugins/device_names.h"
#include "app/plugins/slice_publisher.h"
#include "app/plugins/testing/fake_node_slices.h"
#include "app/plugins/testing/small_kube.h"

namespace carve::plugins {
namespace {

TEST(Publish, OffersOneDevicePerCardWithTheAttributesThatClaimsSelectOn) {
  auto cards = some_cards(2);
  cards.cards[1].architecture = "Hopper";
  cards.cards[1].compute_capability = "9.0";
  const auto devices = devices_of(cards);
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_FALSE(devices[0].attributes.contains("architecture"));  // the driver does not report it
  const auto& d = devices[1];
  EXPECT_EQ(d.name, "gpu-00000001-aaaa-bbbb-cccc-000000000000");
  EXPECT_EQ(std::get<std::string>(d.attributes.at("uuid")), "GPU-00000001-AAAA-bbbb-cccc-000000000000");
  EXPECT_EQ(std::get<std::string>(d.attributes.at("productName")), "NVIDIA H200");
  EXPECT_EQ(std::get<codec::AttributeVersion>(d.attributes.at("driverVersion")).text, "580.65.6");
  EXPECT_EQ(std::get<codec::AttributeVersion>(d.attributes.at("cudaDriverVersion")).text, "13.0.0");
  EXPECT_EQ(std::get<std::string>(d.attributes.at("architecture")), "Hopper");
  EXPECT_EQ(std::get<codec::AttributeVersion>(d.attributes.at("cudaComputeCapability")).text, "9.0.0");
  EXPECT_EQ(std::get<std::string>(d.attributes.at("resource.kubernetes.io/pciBusID")), "0000:21:00.0");
  EXPECT_EQ(std::get<std::string>(d.attributes.at("resource.kubernetes.io/pcieRoot")), "pci0000:11");
  EXPECT_EQ(std::get<std::int64_t>(d.attributes.at("resource.kubernetes.io/numaNode")), 0);
  // 80 GiB and one page: published in whole MiB, a multiple of default and step.
  EXPECT_EQ(d.capacity.at("memory"), (codec::DeviceCapacity{"80Gi", "80Gi", "1Mi", "1Mi", ""}));
  EXPECT_EQ(d.capacity.at("cores"), (codec::DeviceCapacity{"100", "100", "1", "1", ""}));
  EXPECT_TRUE(d.taints.empty());
}

/// A claim that does not name the capacity consumes the default. A claim for more than 1 finds no device.
TEST(Publish, EveryClaimConsumesOneOfTheSlicesThatACardCanHave) {
  const auto devices = devices_of(some_cards(1));
  EXPECT_EQ(devices[0].capacity.at("slices"), (codec::DeviceCapacity{"128", "1", "1", "", "1"}));
  EXPECT_EQ(std::to_string(kMaxSlicesPerCard), devices[0].capacity.at("slices").value) << "what prepare() enforces";
  // The API server's rules for a name without a domain, which is the driver's: a C identifier of at most 32 characters.
  for (const auto& [name, capacity] : devices[0].capacity) {
    EXPECT_LE(name.size(), 32U) << name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << name;
  }
}

codec::PublishedDevice device_in(CardMode mode) {
  const auto cards = some_cards(1);
  return devices_of(cards, {.modes = {{cards.cards[0].id, mode}}})[0];
}

/// KEP-5075: a smaller request is raised to `min`, a larger one than `max` finds no device. default = min + n * step.
TEST(Publish, AnExclusiveCardIsOfferedAsAWholeAndASharedCardNever) {
  const auto alone = device_in(CardMode::kExclusive);
  EXPECT_EQ(alone.capacity.at("memory"), (codec::DeviceCapacity{"80Gi", "80Gi", "80Gi", "", ""}));
  EXPECT_EQ(alone.capacity.at("cores"), (codec::DeviceCapacity{"100", "100", "100", "", ""}));
  EXPECT_EQ(std::get<std::string>(alone.attributes.at("cardMode")), "exclusive") << "claims may select on it";
  const auto shared = device_in(CardMode::kShared);
  EXPECT_EQ(shared.capacity.at("memory"), (codec::DeviceCapacity{"80Gi", "81919Mi", "1Mi", "1Mi", "81919Mi"}));
  EXPECT_EQ(shared.capacity.at("cores"), (codec::DeviceCapacity{"100", "100", "1", "1", ""}));
  EXPECT_EQ(std::get<std::string>(shared.attributes.at("cardMode")), "shared");
}

TEST(Publish, WritesVersionsAsSemanticVersions) {
  EXPECT_EQ(semantic_version("580.65.06"), "580.65.6");
  EXPECT_EQ(semantic_version("13.0"), "13.0.0");
  EXPECT_EQ(semantic_version("0.0.00"), "0.0.0");
  for (const char* text : {"", "a.b", "1.2.3.4", "1..2", "1.2.3-rc", "."})
    EXPECT_EQ(semantic_version(text), std::nullopt) << text;
}

TEST(Publish, TaintsAnUnhealthyCardWithItsReasonAsALabelValue) {
  auto cards = some_cards(1);
  cards.cards[0].health = {false, "XID 79: GPU has fallen off the bus (reset it)"};
  const auto devices = devices_of(cards);
  ASSERT_EQ(devices[0].taints.size(), 1U);
  EXPECT_EQ(devices[0].taints[0].value, "xid-79-gpu-has-fallen-off-the-bus-reset-it");
  EXPECT_EQ(devices[0].taints[0].effect, "NoSchedule");
}

TEST(Publish, SplitsManyCardsIntoSlicesOfOneGeneration) {
  const auto wanted = slices_for("n1", devices_of(some_cards(130)));
  ASSERT_EQ(wanted.size(), 3U);
  EXPECT_EQ(wanted[2].devices.size(), 2U);
  const auto writes = plan(wanted, {}, 0);
  ASSERT_EQ(writes.size(), 3U);
  for (const auto& write : writes) {
    EXPECT_EQ(write.slice.generation, 1);
    EXPECT_EQ(write.slice.count, 3);
  }
  // Fewer cards: the slices that stay are replaced first, the surplus ones are removed last.
  std::vector<codec::PublishedSlice> existing;
  for (const auto& write : writes) existing.push_back(write.slice);
  const auto fewer = plan(slices_for("n1", devices_of(some_cards(60))), existing, 1);
  ASSERT_EQ(fewer.size(), 3U);
  EXPECT_EQ(fewer[0].kind, SliceWrite::Kind::kReplace);
  EXPECT_EQ(fewer[0].slice.generation, 2);
  EXPECT_EQ(fewer[2].kind, SliceWrite::Kind::kRemove);
}

TEST(Publish, KeepsTheGenerationOnlyWhenTaintsChange) {
  auto cards = some_cards(1);
  auto there = slices_for("n1", devices_of(cards));
  there[0].generation = 4;
  there[0].version = "77";
  EXPECT_TRUE(plan(slices_for("n1", devices_of(cards)), there, 4).empty());
  cards.cards[0].health = {false, "XID 48"};
  const auto tainted = plan(slices_for("n1", devices_of(cards)), there, 4);
  ASSERT_EQ(tainted.size(), 1U);
  EXPECT_EQ(tainted[0].slice.generation, 4);
  EXPECT_EQ(tainted[0].slice.version, "77");
  cards.driver_version = "581.1.1";
  EXPECT_EQ(plan(slices_for("n1", devices_of(cards)), there, 4)[0].slice.generation, 5);
}

struct PublisherTest : testing::Test {
  FakeNodeSlices slices{some_cards(2)};
  SmallKube kube;
  Log log{[](std::string_view) {}};
  bool registered = true;
  SlicePublisher publisher{"n1", slices, kube, log, [this] { return registered; }};
  std::string name = "n1-gpu.elasticgpu.io-0";
  void SetUp() override { kube.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1","uid":"node-uid"}})"); }
};

TEST_F(PublisherTest, WritesNothingBeforeTheFirstList) {
  EXPECT_EQ(publisher.reconcile().error().code, Code::kUnavailable);
  EXPECT_TRUE(kube.writes().empty());
}

TEST_F(PublisherTest, CreatesTheSliceOnceAndAgainAfterADeletionOrAnEdit) {
  publisher.replace({});
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_EQ(kube.writes().size(), 1U);
  EXPECT_EQ(kube.writes()[0].first, "create /apis/resource.k8s.io/v1/resourceslices");
  const auto made = kube.writes()[0].second;
  publisher.change({KubeChange::Kind::kDeleted, made});
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_EQ(kube.writes().size(), 2U);
  EXPECT_EQ(codec::parse_slice(kube.writes()[1].second)->generation, 2);  // an old generation is never reused
  auto edited = *codec::parse_slice(kube.writes()[1].second);
  edited.devices.pop_back();
  publisher.change({KubeChange::Kind::kPut, codec::encode_slice(edited, "")});
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_EQ(kube.writes().size(), 3U);
  EXPECT_EQ(kube.writes()[2].first, "replace /apis/resource.k8s.io/v1/resourceslices/" + name);
  EXPECT_EQ(codec::parse_slice(kube.writes()[2].second)->devices.size(), 2U);
}

/// The garbage collector deletes what a Node owns that is gone. The Node of the same name that the kubelet registers
/// next has another UID.
TEST_F(PublisherTest, TheSlicesOfARecreatedNodeBelongToTheNewNode) {
  publisher.replace({});
  ASSERT_TRUE(publisher.reconcile());
  EXPECT_THAT(kube.writes()[0].second, testing::HasSubstr("node-uid"));
  kube.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1","uid":"uid-after-it"}})");
  publisher.change({KubeChange::Kind::kDeleted, kube.writes()[0].second});
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_EQ(kube.writes().size(), 2U);
  EXPECT_THAT(kube.writes()[1].second, testing::HasSubstr("uid-after-it"));
}

TEST_F(PublisherTest, CreatesTheFirstSlicesOnlyAfterTheKubeletHasRegisteredTheDriver) {
  registered = false;
  publisher.replace({});
  EXPECT_EQ(publisher.reconcile().error().code, Code::kUnavailable);
  EXPECT_TRUE(kube.writes().empty());
  registered = true;
  ASSERT_TRUE(publisher.reconcile());
  registered = false;  // existing slices are still kept up to date
  slices.set_health(1, {false, "XID 79"});
  ASSERT_TRUE(publisher.reconcile());
  EXPECT_EQ(kube.writes().size(), 2U);
}

TEST_F(PublisherTest, LeavesSlicesOfOtherDriversAlone) {
  auto other = slices_for("n1", devices_of(slices.cards()));
  other[0].driver = "other.io";
  publisher.replace({codec::encode_slice(other[0], "")});
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_EQ(kube.writes().size(), 1U);
  EXPECT_EQ(kube.writes()[0].first, "create /apis/resource.k8s.io/v1/resourceslices");
}

TEST_F(PublisherTest, PublishesACardsHealthAndItsRecovery) {
  publisher.replace({});
  ASSERT_TRUE(publisher.reconcile());
  slices.set_health(1, {false, "XID 79"});
  ASSERT_TRUE(publisher.reconcile());
  slices.set_health(1, {});
  ASSERT_TRUE(publisher.reconcile());
  ASSERT_EQ(kube.writes().size(), 3U);
  EXPECT_EQ(codec::parse_slice(kube.writes()[1].second)->devices[1].taints.size(), 1U);
  EXPECT_TRUE(codec::parse_slice(kube.writes()[2].second)->devices[1].taints.empty());
}

}  // namespace
}  // namespace carve::plugins
