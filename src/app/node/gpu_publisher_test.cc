#include "app/node/gpu_publisher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/plugins/testing/fake_node_slices.h"
#include "port/testing/fake_kube_api.h"

namespace carve::node {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

/// Tests with an API server that keeps what is written. hear() feeds the watch with its list.
struct GpuPublisherTest : ::testing::Test {
  carve::testing::FakeKubeApi kube;
  GpuPublisher publisher{"n1", kube};
  GpuInventory cards = plugins::some_cards(2);
  std::vector<HeldSlice> held;
  Clock::Time now{seconds(100)};

  std::vector<codec::GpuObject> wanted() { return gpu_objects("n1", cards, held, {}, {}); }
  Result<bool> step(bool complete = true) {
    return publisher.step(wanted(), complete, "node-uid", now);
  }
  void hear() { publisher.replace(*kube.list("/apis/elasticgpu.io/v1alpha1/gpus", {})); }
  void settle() {
    hear();
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(step());
      hear();
      now += GpuPublisher::kGap;
    }
  }
  void hold(std::size_t card, const std::string& uid) {
    HeldSlice one;
    one.slice.owner = {OwnerKind::kPod, uid};
    one.slice.part = "main";
    one.slice.card = cards.cards.at(card).id;
    one.slice.memory = Bytes::gib(4);
    one.slice.compute = CoreShare(30);
    held.push_back(one);
  }
  std::size_t writes() { return kube.writes().size(); }
};

TEST_F(GpuPublisherTest, CreatesOneObjectPerCardAndThenWritesNothing) {
  settle();
  EXPECT_EQ(writes(), 4U);  // each object, and then its status, which a creation cannot contain
  EXPECT_THAT(kube.writes()[0].body, HasSubstr(R"("uid":"node-uid")"));
  settle();
  EXPECT_EQ(writes(), 4U);
}

TEST_F(GpuPublisherTest, WritesABurstOfChangesOncePerCardAndGap) {
  settle();
  const auto before = writes();
  for (int i = 0; i < 20; ++i) {
    hold(0, "u-" + std::to_string(i));
    ASSERT_TRUE(step());
    hear();
    now += std::chrono::milliseconds(100);
  }
  EXPECT_EQ(writes() - before, 1U);
  ASSERT_TRUE(step());
  EXPECT_EQ(writes() - before, 2U);  // two seconds later: all changes since then, in one write
  EXPECT_THAT(kube.writes().back().body, HasSubstr("u-19"));
}

TEST_F(GpuPublisherTest, WritesTheEndOfASliceImmediately) {
  hold(0, "u");
  settle();
  const auto before = writes();
  held[0].ending = true;
  ASSERT_TRUE(step());
  EXPECT_EQ(writes() - before, 0U);  // it can wait
  now += std::chrono::milliseconds(700);
  held.clear();
  ASSERT_TRUE(step());
  EXPECT_EQ(writes() - before, 1U);
  EXPECT_THAT(kube.writes().back().body, HasSubstr(R"("holders":[])"));
}

TEST_F(GpuPublisherTest, ShowsASliceThatEndsSlowlyAsEnding) {
  hold(0, "u");
  settle();
  held[0].ending = true;
  ASSERT_TRUE(step());
  now += GpuPublisher::kGap;
  ASSERT_TRUE(step());
  EXPECT_THAT(kube.writes().back().body, HasSubstr(R"("ending":true)"));
}

// A pod that is killed after a grace period of two seconds ends just when it was shown as ending. Of two pods the
// second ends soon after the first. Other components wait for the room of each.
TEST_F(GpuPublisherTest, WritesTheEndOfASliceImmediatelyAfterAnotherWrite) {
  hold(0, "a");
  hold(0, "b");
  settle();
  held[0].ending = true;
  ASSERT_TRUE(step());
  now += GpuPublisher::kGap;
  ASSERT_TRUE(step());
  const auto before = writes();
  for (const std::size_t left : {1U, 0U}) {
    now += std::chrono::milliseconds(200);
    held.erase(held.begin());
    ASSERT_TRUE(step());
    EXPECT_EQ(writes() - before, 2U - left);
  }
  EXPECT_THAT(kube.writes().back().body, HasSubstr(R"("holders":[])"));
  hold(0, "c");
  now += std::chrono::milliseconds(200);
  ASSERT_TRUE(step());
  EXPECT_EQ(writes() - before, 2U) << "a new slice is not urgent";
}

TEST_F(GpuPublisherTest, RecoversFromALostAnswerAndFromADeletion) {
  settle();
  hold(0, "u-1");
  kube.set_away(true);
  EXPECT_FALSE(step());
  kube.set_away(false);
  now += GpuPublisher::kGap;
  settle();
  EXPECT_THAT(kube.list("/apis/elasticgpu.io/v1alpha1/gpus", {})->front(), HasSubstr("u-1"));
  ASSERT_TRUE(kube.remove("/apis/elasticgpu.io/v1alpha1/gpus/" + wanted()[1].name));
  settle();
  EXPECT_EQ(kube.list("/apis/elasticgpu.io/v1alpha1/gpus", {})->size(), 2U);
}

TEST_F(GpuPublisherTest, DeletesTheObjectOfACardThatIsGone) {
  settle();
  cards.cards.pop_back();
  ASSERT_TRUE(step(false));
  now += GpuPublisher::kGone * 2;
  ASSERT_TRUE(step(false));  // the driver does not answer, so no card is known to be gone
  EXPECT_EQ(kube.list("/apis/elasticgpu.io/v1alpha1/gpus", {})->size(), 2U);
  ASSERT_TRUE(step(true));
  now += GpuPublisher::kGone - seconds(1);
  ASSERT_TRUE(step(true));
  EXPECT_EQ(kube.list("/apis/elasticgpu.io/v1alpha1/gpus", {})->size(), 2U);
  now += seconds(1);
  ASSERT_TRUE(step(true));
  EXPECT_EQ(kube.list("/apis/elasticgpu.io/v1alpha1/gpus", {})->size(), 1U);
}

TEST_F(GpuPublisherTest, WritesNothingBeforeTheFirstList) {
  EXPECT_FALSE(step());
  EXPECT_EQ(writes(), 0U);
}

TEST(GpuObjects, ListAClaimUnderEveryPodAndContainerThatNamesIt) {
  const auto cards = plugins::some_cards(1);
  HeldSlice one;
  one.slice.owner = {OwnerKind::kClaim, "u-c"};
  one.slice.part = "big/sub";
  one.slice.card = cards.cards[0].id;
  one.slice.memory = Bytes::gib(4);
  const auto pod = [](const char* namespace_name, const char* name, const char* uid,
                      std::vector<codec::PodClaimUse> uses) {
    codec::NodePod made;
    made.namespace_name = namespace_name;
    made.name = name;
    made.uid = uid;
    made.claims = std::move(uses);
    return made;
  };
  const auto first = pod("ml", "p1", "u-1", {{"c", "a", ""}, {"c", "b", "other"}});
  const auto second = pod("ml", "p2", "u-2", {{"c", "x", "big"}});
  const auto elsewhere = pod("web", "p3", "u-3", {{"c", "x", ""}});
  const auto known =
      gpu_objects("n1", cards, {one}, {first, second, elsewhere}, {{"u-c", {"ml", "c"}}});
  ASSERT_EQ(known.size(), 1U);
  ASSERT_EQ(known[0].allocated.size(), 2U);
  EXPECT_EQ(known[0].allocated.at("u-1").containers.at(0).name, "a");
  EXPECT_EQ(known[0].allocated.at("u-2").containers.at(0).name, "x");
  EXPECT_EQ(known[0].holders.at(0).pods, (std::vector<std::string>{"ml/p1", "ml/p2"}));
  // While the claim's name is not known, it is listed under its own UID.
  const auto unknown = gpu_objects("n1", cards, {one}, {first}, {});
  EXPECT_TRUE(unknown[0].allocated.contains("u-c"));
}

}  // namespace
}  // namespace carve::node
