#include "app/control/schedule/requeuer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/control/testing/leading.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;

class RequeuerTest : public ::testing::Test, protected Leading {
 protected:
  explicit RequeuerTest(const std::vector<codec::GpuObject>& cards = {gpu("n1", "GPU-0")}) : Leading(cards) {
    sync(model, api);
  }
  std::size_t patches() {
    std::size_t count = 0;
    for (const auto& write : api.writes()) count += write.verb == "patch" && write.done ? 1 : 0;
    return count;
  }
  UnschedulablePods unschedulable;
  Requeuer requeuer{{model, leader, unschedulable, api, clock, log}};
};

TEST_F(RequeuerTest, TouchesANodeOnceTheModelHasSeenTheRelease) {
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

TEST_F(RequeuerTest, TouchesANodeWhenTheQuotasChange) {
  add({.uid = "waits"});
  requeuer.step();
  const auto before = patches();
  model.set_quotas({{"s", {{"", 100}}}});
  requeuer.step();
  EXPECT_EQ(patches(), before + 1) << "the quota that kept the pod out may be larger now";
  clock.advance(Requeuer::kGap);
  model.set_quotas({{"s", {{"", 100}}}});
  requeuer.step();
  EXPECT_EQ(patches(), before + 1) << "the same quotas";
}

// The cards of a deleted pod become free one after the other, and a waiting pod may need all of them.
TEST_F(RequeuerTest, TouchesSoonAgainForTheNextCardAndLaterIfManyPodsWait) {
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

// kube-scheduler refused the pod before the room became free, and the watch of pods is late.
TEST_F(RequeuerTest, TouchesANodeAtTheResyncForAPodThatItSawTooLate) {
  auto card = gpu("n1", "GPU-0");
  card.holders = {holder(slice("old", "GPU-0", 16))};
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  requeuer.step();
  card.holders.clear();
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  requeuer.step();
  add({.uid = "waits"});
  requeuer.step();
  EXPECT_EQ(patches(), 0U);
  for (int i = 0; i < 3; ++i) {
    clock.advance(kResync);
    lead();
    requeuer.step();
    EXPECT_EQ(patches(), 1U) << "once";
  }
}

TEST_F(RequeuerTest, ForgetsRoomForWhichNoPodWaited) {
  auto card = gpu("n1", "GPU-0");
  card.holders = {holder(slice("old", "GPU-0", 16))};
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  requeuer.step();
  card.holders.clear();
  model.gpus().change({KubeChange::Kind::kPut, gpu_object(card)});
  for (int i = 0; i < 3; ++i) {
    requeuer.step();
    clock.advance(kResync);
    lead();
  }
  add({.uid = "waits"});
  requeuer.step();
  EXPECT_EQ(patches(), 0U);
}

/// A hundred nodes with one card each.
class RequeuerOfManyNodesTest : public RequeuerTest {
 protected:
  static std::string name(int i) { return fmt::format("n{:02}", i); }
  static codec::GpuObject card(int i, std::uint64_t gib) {
    auto made = gpu(name(i), fmt::format("GPU-{:02}", i));
    if (gib != 0) made.holders = {holder(slice("old", made.card.id.str(), gib))};
    return made;
  }
  static std::vector<codec::GpuObject> cards() {
    std::vector<codec::GpuObject> made;
    for (int i = 0; i < 100; ++i) made.push_back(card(i, 16));
    return made;
  }
  RequeuerOfManyNodesTest() : RequeuerTest(cards()) {
    add({.uid = "waits"});
    requeuer.step();
  }
  void frees(int i) { model.gpus().change({KubeChange::Kind::kPut, gpu_object(card(i, 0))}); }
};

TEST_F(RequeuerOfManyNodesTest, ComparesNoNodeWithoutAChange) {
  const auto before = requeuer.examined();
  EXPECT_EQ(requeuer.step(), clock.now() + kResync);
  clock.advance(kResync - 1ms);
  leader.step();
  requeuer.step();
  EXPECT_EQ(requeuer.examined(), before);
  EXPECT_EQ(patches(), 0U);
}

TEST_F(RequeuerOfManyNodesTest, ComparesOnlyTheNodeThatChanged) {
  const auto before = requeuer.examined();
  frees(7);
  requeuer.step();
  EXPECT_EQ(requeuer.examined(), before + 1);
  EXPECT_THAT(*api.object("/api/v1/nodes/n07"), HasSubstr(Requeuer::kTouched));
  EXPECT_EQ(patches(), 1U);
}

TEST_F(RequeuerOfManyNodesTest, FindsRoomWhoseChangeWasLostAtTheResync) {
  frees(7);
  (void)requeuer.changes().take();  // lost
  requeuer.step();
  EXPECT_EQ(patches(), 0U);
  clock.advance(kResync);
  lead();
  requeuer.step();
  EXPECT_THAT(*api.object("/api/v1/nodes/n07"), HasSubstr(Requeuer::kTouched));
  EXPECT_EQ(patches(), 1U);
}

// A change between the take and the comparison must count: each node is compared with what it was at its own last
// comparison.
TEST_F(RequeuerOfManyNodesTest, MissesNoRoomThatBecomesFreeDuringAStep) {
  frees(7);
  frees(8);
  const auto later = requeuer.changes().take();
  requeuer.changes().add_node("n07");
  requeuer.step();  // its snapshot contains the change of n08 already
  EXPECT_EQ(patches(), 1U);
  requeuer.changes().add_node("n08");
  clock.advance(Requeuer::kLeastGap);
  requeuer.step();
  EXPECT_EQ(patches(), 2U);
  EXPECT_EQ(later.nodes, (std::set<std::string>{"n07", "n08"}));
}

// A follower that becomes the leader.
TEST_F(RequeuerOfManyNodesTest, TouchesANodeThatBecameFreeBeforeItLed) {
  clock.advance(1h);
  requeuer.step();
  frees(7);
  requeuer.step();
  EXPECT_EQ(patches(), 0U);
  lead();
  requeuer.step();
  EXPECT_EQ(patches(), 1U);
}

TEST_F(RequeuerOfManyNodesTest, EndsTheRoomOfADeletedPodInTime) {
  frees(7);
  requeuer.step();
  const auto held = pod_object({.uid = "h", .node = "n07", .record = record_text({slice("h", "GPU-07", 16)})});
  model.pods().change({KubeChange::Kind::kPut, held});
  requeuer.step();
  model.pods().change({KubeChange::Kind::kDeleted, held});
  EXPECT_EQ(requeuer.step(), clock.now() + ClusterModel::kLinger);
  const auto before = patches();
  clock.advance(ClusterModel::kLinger);
  leader.step();
  requeuer.step();
  EXPECT_EQ(patches(), before + 1);
}

}  // namespace
}  // namespace carve::control
