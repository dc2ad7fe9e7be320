#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "app/plugins/testing/slot_node.h"
#include "codec/record.h"

// The starts that the end of the agent would interrupt.
namespace carve::plugins {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SlotUnfinished : public SlotNode {
 protected:
  void hear(const std::string& uid, bool decided, const std::string& phase = "Pending") {
    SlotNode::hear(uid, phase,
                   record_annotation(decided ? *codec::encode_record(*record_of(1, slices_of_pod(uid))) : ""));
  }
  void start(const std::string& slot) {
    plugin.before_start({slot}, [](const Result<void>&) {});
  }
};

TEST_F(SlotUnfinished, ContainsAPodFromItsBindingToItsStart) {
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
  hear("a", true);
  EXPECT_THAT(plugin.unfinished(), ElementsAre(HasSubstr("pod s/a, container main: bound here")));
  allocate("a", "slot-0001");
  EXPECT_THAT(plugin.unfinished(), ElementsAre(HasSubstr("bound here")));  // admitted; its slices do not exist yet
  plugin.step();
  EXPECT_THAT(plugin.unfinished(), ElementsAre(HasSubstr("pod s/a, container main: about to start")));
  start("slot-0001");
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
  plugin.step();
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, OmitsAContainerThatWaitsForItsImage) {
  hear("a", true);
  allocate("a", "slot-0001");
  plugin.step();
  EXPECT_THAT(plugin.unfinished(), ElementsAre(HasSubstr("about to start")));
  clock.advance(seconds(6));
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, OmitsPodsWithoutARecordAndEndedPods) {
  hear("undecided", false);
  hear("ended", true, "Failed");
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
  hear("gone", true);
  EXPECT_THAT(plugin.unfinished(), ElementsAre(HasSubstr("s/gone")));
  pods.change({KubeChange::Kind::kDeleted, R"({"metadata":{"namespace":"s","name":"gone","uid":"gone"}})"});
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, OmitsContainersOfAPreviousAgent) {
  hear("a", true);
  kubelet.entries.push_back({"a", "main", {"slot-0001"}, {"carve.elasticgpu.io/slice=old"}});
  plugin.restore();
  plugin.step();
  EXPECT_THAT(plugin.unfinished(), IsEmpty());
}

TEST_F(SlotUnfinished, SlotsAreOfferedWhenAFreeOneIsHealthy) {
  EXPECT_TRUE(plugin.offers());
  slices.set_health(0, {false, "not asked yet"});
  kubelet.entries.push_back({"a", "main", {"slot-0001"}, {"carve.elasticgpu.io/slice=old"}});
  plugin.restore();
  const auto list = plugin.list();
  EXPECT_EQ(std::count_if(list.begin(), list.end(), [](const SlotDevice& one) { return one.healthy; }), 1)
      << "the slot that is in use";
  EXPECT_FALSE(plugin.offers());
  slices.set_health(0, {});
  clock.advance(seconds(1));
  plugin.step();
  EXPECT_TRUE(plugin.offers());
}

TEST_F(SlotUnfinished, KeepsAContainerWhoseSliceIsRefused) {
  slices.fail_prepare_of = "main";
  hear("a", true);
  allocate("a", "slot-0001");
  plugin.step();
  clock.advance(seconds(30));
  EXPECT_THAT(plugin.unfinished(), ElementsAre(HasSubstr("bound here")));
}

// Whether a container gets what a record says.
using SlotRecord = SlotNode;

TEST_F(SlotRecord, OfAnotherUidGivesNothingAndTheRefusalNamesBoth) {
  hear("a", "Pending", record_annotation(*codec::encode_record(*record_of(1, slices_of_pod("b")))));
  allocate("a", "slot-0001");
  std::optional<Result<void>> answer;
  plugin.before_start({"slot-0001"}, [&](const Result<void>& result) { answer = result; });
  for (int second = 0; second < 120 && !answer; ++second) {
    plugin.step();
    clock.advance(seconds(1));
  }
  ASSERT_TRUE(answer && !*answer);
  EXPECT_THAT(answer->error().what, HasSubstr("its record is for pod b, but the pod's UID is a"));
  EXPECT_THAT(slices.held(), IsEmpty());
}

}  // namespace
}  // namespace carve::plugins
