#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/doors/slot_door.h"
#include "app/doors/testing/fake_node_slices.h"
#include "app/doors/testing/remembering_kubelet.h"
#include "app/doors/testing/small_kube.h"
#include "codec/record.h"

// What the end of the agent would break off.
namespace carve::doors {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '"' ? std::string("\\\"") : std::string(1, c);
  return "\"" + out + "\"";
}

class SlotUnfinished : public ::testing::Test {
 protected:
  std::vector<Slice> slices_of_pod(const std::string& uid) {
    Slice one;
    one.owner = {OwnerKind::kPod, uid};
    one.part = "main";
    one.card = slices.cards().cards.front().id;
    one.memory = Bytes::gib(1);
    one.compute = CoreShare(5);
    return {one};
  }
  /// The API server tells of a pod that is bound here.
  void hear(const std::string& uid, bool decided, const std::string& phase = "Pending") {
    const auto record = decided ? quoted(*codec::encode_record(*record_of(1, slices_of_pod(uid)))) : "\"\"";
    pods.change({KubeChange::Kind::kPut, R"({"metadata":{"namespace":"s","name":")" + uid + R"(","uid":")" + uid +
                                             R"(","annotations":{")" + std::string(codec::kRecordAnnotation) + "\":" +
                                             record + R"(}},"spec":{"nodeName":"n1","containers":[{"name":"main"}]},)" +
                                             R"("status":{"phase":")" + phase + "\"}}"});
  }
  /// The kubelet admits it.
  void allocate(const std::string& uid, const std::string& slot) {
    const auto device = door.allocate({slot});
    ASSERT_TRUE(device) << device.error().what;
    kubelet.entries.push_back({uid, "main", {slot}, {*device}});
  }
  void start(const std::string& slot) {
    door.before_start({slot}, [](const Result<void>&) {});
  }

  ManualClock clock;
  Log log{[](std::string_view) {}};
  SmallKube kube;
  FakeNodeSlices slices{some_cards(1)};
  RememberingKubelet kubelet;
  NodePods pods{"n1", kube};
  Notices notices{kube, "n1", clock, log};
  SlotDoor door{{slices, kubelet, pods, notices, clock, log, {}}};
};

TEST_F(SlotUnfinished, APodIsFollowedFromItsBindingToItsStart) {
  EXPECT_THAT(door.unfinished(), IsEmpty());
  hear("a", true);
  EXPECT_THAT(door.unfinished(), ElementsAre(HasSubstr("pod s/a, container main: bound here")));
  allocate("a", "slot-0001");
  EXPECT_THAT(door.unfinished(), ElementsAre(HasSubstr("bound here")));  // admitted; its slices do not stand yet
  door.step();
  EXPECT_THAT(door.unfinished(), ElementsAre(HasSubstr("pod s/a, container main: about to start")));
  start("slot-0001");
  EXPECT_THAT(door.unfinished(), IsEmpty());
  door.step();
  EXPECT_THAT(door.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, AContainerThatWaitsForItsImageIsNotWaitedFor) {
  hear("a", true);
  allocate("a", "slot-0001");
  door.step();
  EXPECT_THAT(door.unfinished(), ElementsAre(HasSubstr("about to start")));
  clock.advance(seconds(6));
  EXPECT_THAT(door.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, NobodyDecidedOrItIsOver) {
  hear("undecided", false);
  hear("ended", true, "Failed");
  EXPECT_THAT(door.unfinished(), IsEmpty());
  hear("gone", true);
  EXPECT_THAT(door.unfinished(), ElementsAre(HasSubstr("s/gone")));
  pods.change({KubeChange::Kind::kDeleted, R"({"metadata":{"namespace":"s","name":"gone","uid":"gone"}})"});
  EXPECT_THAT(door.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, WhatAnEarlierLifeGaveOutIsNotAboutToStart) {
  hear("a", true);
  kubelet.entries.push_back({"a", "main", {"slot-0001"}, {"carve.elasticgpu.io/slice=old"}});
  door.restore();
  door.step();
  EXPECT_THAT(door.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, SlotsAreOfferedWhenOneThatNobodyHoldsIsWell) {
  EXPECT_TRUE(door.offers());
  slices.set_health(0, {false, "not asked yet"});
  kubelet.entries.push_back({"a", "main", {"slot-0001"}, {"carve.elasticgpu.io/slice=old"}});
  door.restore();
  const auto list = door.list();
  EXPECT_EQ(std::count_if(list.begin(), list.end(), [](const SlotDevice& one) { return one.healthy; }), 1)
      << "the one that is held";
  EXPECT_FALSE(door.offers());
  slices.set_health(0, {});
  clock.advance(seconds(1));
  door.step();
  EXPECT_TRUE(door.offers());
}

TEST_F(SlotUnfinished, ASliceThatIsRefusedStaysUnfinished) {
  slices.fail_prepare_of = "main";
  hear("a", true);
  allocate("a", "slot-0001");
  door.step();
  clock.advance(seconds(30));
  EXPECT_THAT(door.unfinished(), ElementsAre(HasSubstr("bound here")));
}

}  // namespace
}  // namespace carve::doors
