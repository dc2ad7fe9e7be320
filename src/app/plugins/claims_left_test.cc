#include "app/plugins/claims_left.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "app/plugins/testing/fake_node_slices.h"
#include "app/plugins/testing/small_kube.h"

namespace carve::plugins {
namespace {

class ClaimsLeftTest : public ::testing::Test {
 protected:
  /// A pod of node n1 with a claim.
  void hear(const std::string& phase, bool deleting = false, KubeChange::Kind kind = KubeChange::Kind::kPut) {
    pods.change({kind, fmt::format(R"({{"metadata":{{"namespace":"ml","name":"p","uid":"u-p"{}}},"spec":{{)"
                                   R"("nodeName":"n1","resourceClaims":[{{"name":"g","resourceClaimName":"c"}}],)"
                                   R"("containers":[{{"name":"main","resources":{{"claims":[{{"name":"g"}}]}}}}]}},)"
                                   R"("status":{{"phase":"{}"}}}})",
                                   deleting ? R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")" : "", phase)});
  }
  void allocate(const std::string& driver, const std::string& pool) {
    kube.put("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/c",
             fmt::format(R"({{"metadata":{{"name":"c","uid":"u-c"}},"status":{{"allocation":{{"devices":{{"results":[)"
                         R"({{"driver":"{}","pool":"{}","device":"d"}}]}}}}}}}})",
                         driver, pool));
  }
  void prepare() {
    Slice slice;
    slice.owner = claim;
    slice.part = "g";
    slice.card = slices.cards().cards.front().id;
    slice.memory = Bytes::gib(1);
    slice.compute = CoreShare(5);
    ASSERT_TRUE(slices.prepare({*record_of(0, {slice}), slice.part, "", "ml/p/g"}));
  }
  bool any() { return left.any(clock.now()); }

  const Owner claim{OwnerKind::kClaim, "u-c"};
  ManualClock clock;
  FakeNodeSlices slices{some_cards(1)};
  SmallKube kube;
  NodePods pods{"n1", kube};
  ClaimsLeft left{"n1", slices, pods, kube};
};

TEST_F(ClaimsLeftTest, ANodeThatNeverServedClaimsHasNone) {
  EXPECT_FALSE(any());
  EXPECT_EQ(kube.gets, 0) << "a node without claims asks nothing";
}

TEST_F(ClaimsLeftTest, APreparedClaimIsLeftUntilALittleAfterItsEnd) {
  prepare();
  EXPECT_TRUE(any());
  EXPECT_EQ(left.prepared(), 1U);
  ASSERT_TRUE(slices.unprepare(claim));
  EXPECT_TRUE(any()) << "the kubelet may repeat the call";
  clock.advance(ClaimsLeft::kLinger);
  EXPECT_FALSE(any());
}

TEST_F(ClaimsLeftTest, AClaimThatWasAllocatedHereAndNeverPreparedIsLeftUntilItsPodIsDeleted) {
  allocate("gpu.elasticgpu.io", "n1");
  hear("Pending");
  EXPECT_TRUE(any());
  hear("Failed", true);
  clock.advance(ClaimsLeft::kLinger);
  EXPECT_TRUE(any()) << "Terminating: the kubelet calls unprepare";
  EXPECT_EQ(kube.gets, 1) << "an allocation does not change";
  hear("Failed", true, KubeChange::Kind::kDeleted);
  clock.advance(ClaimsLeft::kLinger);
  EXPECT_FALSE(any());
}

TEST_F(ClaimsLeftTest, ClaimsOfOtherDriversAndOtherNodesDoNotCount) {
  hear("Running");
  allocate("nic.io", "n1");
  EXPECT_FALSE(any());
  hear("Running", false, KubeChange::Kind::kDeleted);
  EXPECT_FALSE(any());
  hear("Running");
  allocate("gpu.elasticgpu.io", "n2");
  EXPECT_FALSE(any());
}

TEST_F(ClaimsLeftTest, AClaimThatCannotBeReadIsReadAgain) {
  hear("Running");
  EXPECT_FALSE(any());
  allocate("gpu.elasticgpu.io", "n1");
  EXPECT_FALSE(any()) << "not before kAskAgain";
  clock.advance(ClaimsLeft::kAskAgain);
  EXPECT_TRUE(any());
}

TEST_F(ClaimsLeftTest, WithdrawsTheSlicesOfThisNodeOnly) {
  const auto put = [this](const std::string& name, const std::string& driver, const std::string& node) {
    kube.put(
        "/apis/resource.k8s.io/v1/resourceslices/" + name,
        fmt::format(R"({{"metadata":{{"name":"{}"}},"spec":{{"driver":"{}","nodeName":"{}"}}}})", name, driver, node));
  };
  put("a", "gpu.elasticgpu.io", "n1");
  put("b", "gpu.elasticgpu.io", "n2");
  put("c", "nic.io", "n1");
  EXPECT_EQ(left.withdraw_slices(), 1U);
  ASSERT_EQ(kube.writes().size(), 1U);
  EXPECT_EQ(kube.writes()[0].first, "remove /apis/resource.k8s.io/v1/resourceslices/a");
  kube.set_away(true);
  EXPECT_FALSE(left.withdraw_slices());
}

}  // namespace
}  // namespace carve::plugins
