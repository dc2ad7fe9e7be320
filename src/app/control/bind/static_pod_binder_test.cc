#include "app/control/bind/static_pod_binder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/control/bind/binder.h"
#include "app/control/testing/leading.h"
#include "app/control/schedule/requeuer.h"
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
  Requeuer requeuer{model, leader, api, clock, log};
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

TEST_F(StaticPodBinderTest, TouchesANodeOnceTheModelHasSeenTheRelease) {
  auto card = gpu("n1", "GPU-0");
  card.holders = {holder(slice("old", "GPU-0", 16))};
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  requeuer.step();
  card.holders.clear();
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  requeuer.step();
  EXPECT_EQ(patches(), 0U) << "no pod waits";
  add({.uid = "waits"});
  card.holders = {holder(slice("old", "GPU-0", 16))};
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  requeuer.step();
  EXPECT_EQ(patches(), 0U) << "nothing became free";
  card.holders.clear();
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  api.fail_next({.verb = "patch", .path = "nodes", .code = Code::kUnavailable});
  requeuer.step();
  EXPECT_EQ(patches(), 0U);
  clock.advance(Requeuer::kGap);
  requeuer.step();
  requeuer.step();
  EXPECT_EQ(patches(), 1U) << "the failed touch is repeated once";
  EXPECT_THAT(*api.object("/api/v1/nodes/n1"), HasSubstr(Requeuer::kTouched));
}

// The cards of a deleted pod become free one after the other, and a waiting pod may need all of them.
TEST_F(StaticPodBinderTest, TouchesSoonAgainForTheNextCardAndLaterIfManyPodsWait) {
  const auto free_one = [&](const std::string& uuid) {
    auto card = gpu("n1", uuid);
    card.holders = {holder(slice("old", uuid, 16))};
    model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
    requeuer.step();
    card.holders.clear();
    model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
    requeuer.step();
  };
  add({.uid = "waits"});
  free_one("GPU-0");
  const auto before = patches();
  free_one("GPU-1");
  EXPECT_EQ(patches(), before);
  clock.advance(Requeuer::kLeastGap);
  requeuer.step();
  EXPECT_EQ(patches(), before + 1);
  EXPECT_EQ(Requeuer::gap_for(1), Requeuer::kLeastGap);
  EXPECT_EQ(Requeuer::gap_for(60), 300ms);
  EXPECT_EQ(Requeuer::gap_for(100'000), Requeuer::kGap);
}

}  // namespace
}  // namespace carve::control
