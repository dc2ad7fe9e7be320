#include "app/control/bind/static_pod_binder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/control/bind/binder.h"
#include "app/control/testing/leading.h"
#include "codec/record.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;

class StaticPodBinderTest : public ::testing::Test, protected Leading {
 protected:
  StaticPodBinderTest() : Leading({gpu("n1", "GPU-0")}) { sync(model, api); }
  std::size_t patches() {
    std::size_t count = 0;
    for (const auto& write : api.writes()) count += write.verb == "patch" && write.done ? 1 : 0;
    return count;
  }
  StaticPodBinder binder{
      {model, leader, api, clock, log, {}, binpack, [this](codec::EventNote one) { record_event(std::move(one)); }}};
};

TEST_F(StaticPodBinderTest, WritesTheRecordOfABoundPodWithOnePatch) {
  add({.uid = "a", .node = "n1"});
  binder.step();
  const auto record = codec::decode_record(pod("a").record);
  ASSERT_TRUE(record) << record.error().what;
  EXPECT_EQ(record->owner.uid, "a");
  binder.step();
  EXPECT_EQ(patches(), 1U);
  deliver("a");
  clock.advance(1h);
  EXPECT_EQ(model.stats().reserved, 0U);
  EXPECT_EQ(model.stats().holding, 1U);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_FALSE(events[0].warning);
}

TEST_F(StaticPodBinderTest, ReportsMissingRoomAndRetries) {
  add({.uid = "a", .node = "n1", .gib = "17"});
  binder.step();
  binder.step();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0].warning);
  EXPECT_THAT(events[0].message, HasSubstr("16 GiB < 17 GiB"));
  clock.advance(StaticPodBinder::kRetry);
  leader.step();
  binder.step();
  EXPECT_EQ(events.size(), 2U);
  EXPECT_EQ(patches(), 0U);
}

TEST_F(StaticPodBinderTest, SkipsStartedPodsAndNodesWithoutCards) {
  add({.uid = "far", .node = "n7"});
  auto object = pod_object({.uid = "runs", .node = "n1"});
  object.replace(object.find(R"("phase")"), 7, R"("containerStatuses":[{"state":{"running":{}}}],"phase")");
  api.put(pod_path("runs"), object);
  deliver("runs");
  binder.step();
  EXPECT_EQ(patches(), 0U);
  EXPECT_TRUE(events.empty());
}

// A pod of an excluded namespace on a node with Carve's cards: it belongs to another system.
TEST_F(StaticPodBinderTest, SkipsPodsWithoutSlots) {
  add({.uid = "theirs", .node = "n1", .slots = false});
  binder.step();
  EXPECT_EQ(patches(), 0U);
  EXPECT_EQ(model.stats().unplaced, 0U);
  EXPECT_TRUE(events.empty());
  add({.uid = "ours", .node = "n1"});
  binder.step();
  EXPECT_EQ(patches(), 1U);
}

TEST_F(StaticPodBinderTest, RepeatsALostOrConflictingPatchWithTheSameRecord) {
  add({.uid = "a", .node = "n1"});
  api.fail_next({.verb = "patch", .path = "pods/a", .code = Code::kDeadlineExceeded});
  binder.step();
  EXPECT_EQ(pod("a").record, "");
  EXPECT_EQ(model.stats().reserved, 1U);
  auto changed = nlohmann::json::parse(*api.object(pod_path("a")));
  changed["metadata"]["labels"]["x"] = "y";
  api.put(pod_path("a"), changed.dump());  // our next patch carries an older resourceVersion
  clock.advance(1s);
  binder.step();
  EXPECT_EQ(pod("a").record, "");
  deliver("a");
  clock.advance(1s);
  binder.step();
  EXPECT_NE(pod("a").record, "");
  deliver("a");
  EXPECT_EQ(model.stats().reserved, 0U);
  EXPECT_EQ(model.snapshot()->at("n1")->ledger.slices().size(), 1U);
}

TEST_F(StaticPodBinderTest, KeepsRoomAfterAServerErrorOnThePatch) {
  add({.uid = "a", .node = "n1", .gib = "16"});
  api.fail_next({.verb = "patch", .path = "pods/a", .code = Code::kInternal, .done = true});
  binder.step();
  EXPECT_EQ(model.stats().reserved, 1U) << "no other pod gets the room";
  EXPECT_TRUE(events.empty()) << "the patch may have taken effect";
  deliver("a");
  EXPECT_EQ(model.stats().reserved, 0U);
  EXPECT_EQ(model.stats().holding, 1U);
}

TEST_F(StaticPodBinderTest, ReportsRepeatedServerErrors) {
  add({.uid = "a", .node = "n1"});
  api.fail_next({.verb = "patch", .path = "pods/a", .code = Code::kInternal, .times = 3});
  binder.step();
  EXPECT_TRUE(events.empty()) << "the patch may have taken effect";
  clock.advance(StaticPodBinder::kRetrySoon);
  binder.step();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0].warning);
  EXPECT_EQ(events[0].reason, "NoCards");
  EXPECT_THAT(events[0].message, HasSubstr("the record of its cards on node n1 cannot be written: "));
  for (int i = 0; i < 2; ++i) {
    clock.advance(StaticPodBinder::kRetry);
    leader.step();
    binder.step();
  }
  EXPECT_NE(pod("a").record, "") << "as soon as the server accepts the patch";
}

TEST_F(StaticPodBinderTest, PatchesNothingWithoutLeading) {
  add({.uid = "a", .node = "n1"});
  clock.advance(1h);
  binder.step();
  EXPECT_EQ(patches(), 0U);
}

// The node is full at first; nothing that concerns the pod changes until it ends.
TEST_F(StaticPodBinderTest, LooksAtNoPodWithoutAChange) {
  add({.uid = "a", .node = "n1"});
  binder.step();
  deliver("a");
  binder.step();
  const auto before = binder.examined();
  const auto next = binder.step();
  EXPECT_EQ(next, clock.now() + kResync);
  add({.uid = "runs", .node = "n1", .record = record_text({slice("runs", "GPU-0", 1)}), .phase = "Running"});
  clock.advance(StaticPodBinder::kRetry);
  leader.step();
  binder.step();
  EXPECT_EQ(binder.examined(), before);
}

TEST_F(StaticPodBinderTest, LooksOnlyAtThePodThatChanged) {
  for (const std::string uid : {"h0", "h1", "h2", "h3", "h4"})
    add({.uid = uid, .node = "n1", .record = record_text({slice(uid, "GPU-0", 1)}), .phase = "Running"});
  binder.step();
  const auto before = binder.examined();
  add({.uid = "a", .node = "n1"});
  binder.step();
  EXPECT_NE(pod("a").record, "");
  EXPECT_EQ(binder.examined(), before + 2) << "once as the change, once to place it";
}

TEST_F(StaticPodBinderTest, FindsAPodWhoseChangeWasLostAtTheResync) {
  binder.step();
  add({.uid = "a", .node = "n1"});
  (void)binder.changes().take();  // lost
  const auto next = binder.step();
  EXPECT_EQ(pod("a").record, "");
  EXPECT_LE(next, clock.now() + kResync);
  clock.advance(kResync);
  lead();
  binder.step();
  EXPECT_NE(pod("a").record, "");
}

TEST_F(StaticPodBinderTest, PlacesThePodsThatCameWhileItDidNotLead) {
  clock.advance(1h);
  add({.uid = "a", .node = "n1"});
  binder.step();
  EXPECT_EQ(patches(), 0U);
  lead();
  EXPECT_TRUE(leader.leads_until(clock.now()));
  binder.step();
  EXPECT_NE(pod("a").record, "");
}

// The pod's node gets its first card later.
TEST_F(StaticPodBinderTest, PlacesAPodWhenItsNodeAppears) {
  add({.uid = "a", .node = "n9"});
  binder.step();
  model.nodes().change({KubeChange::Kind::kPut, node_object("n9")});
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(gpu("n9", "GPU-9"))});
  EXPECT_TRUE(binder.changes().take().nodes.contains("n9"));
  binder.step();
  EXPECT_NE(pod("a").record, "");
}

}  // namespace
}  // namespace carve::control
