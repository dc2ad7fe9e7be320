#include "app/node/pod_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "port/testing/fake_kube_api.h"

namespace carve::node {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kClaims = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims";

struct PodClaimsTest : ::testing::Test {
  carve::testing::FakeKubeApi kube;
  ManualClock clock;
  Log log{[](std::string_view) {}};
  events::EventRecorder notices{kube, "n1", clock, log};
  PodClaims claims{kube, notices};
  codec::NodePod pod;
  PodClaimsTest() {
    pod.namespace_name = "ml";
    pod.name = "p";
    pod.uid = "u-p";
    pod.node = "n1";
    pod.pending = true;
    pod.claims = {{"c", "main", ""}};
  }

  void make_class(const std::string& name, const std::string& driver) {
    EXPECT_TRUE(kube.create("/apis/resource.k8s.io/v1/deviceclasses",
                            R"({"metadata":{"name":")" + name +
                                R"("},"spec":{"selectors":[{"cel":{"expression":)" +
                                R"("device.driver == ')" + driver + R"('"}}]}})"));
  }
  std::string make_claim(const std::string& status, const std::string& device_class = "mine") {
    const auto made = kube.create(
        kClaims, R"({"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"exactly":)"
                 R"({"deviceClassName":")" +
                     device_class + R"("}}]}},"status":)" + status + "}");
    EXPECT_TRUE(made);
    return codec::uid_of(*made);
  }
  std::vector<std::string> events() {
    notices.flush();
    std::vector<std::string> bodies;
    for (const auto& write : kube.writes()) {
      if (write.path == "/api/v1/namespaces/ml/events") bodies.push_back(write.body);
    }
    return bodies;
  }
};

TEST_F(PodClaimsTest, ReadsAClaimOnce) {
  make_class("mine", "gpu.elasticgpu.io");
  const auto uid = make_claim(R"({"allocation":{"devices":{"results":[]}}})");
  EXPECT_TRUE(claims.step({pod}, {}, clock.now()));
  EXPECT_EQ(claims.names().at(uid).name, "c");
  EXPECT_FALSE(claims.step({pod}, {}, clock.now()));
  EXPECT_TRUE(events().empty());
  // The claim is re-created under its name: the unknown owner of a slice causes another read.
  ASSERT_TRUE(kube.remove(std::string(kClaims) + "/c"));
  const auto next = make_claim(R"({"allocation":{"devices":{"results":[]}}})");
  HeldSlice held;
  held.slice.owner = {OwnerKind::kClaim, next};
  EXPECT_TRUE(claims.step({pod}, {held}, clock.now() + seconds(11)));
  EXPECT_EQ(claims.names().at(next).name, "c");
  // When the pod is deleted, its claims are forgotten.
  claims.step({}, {}, clock.now());
  EXPECT_TRUE(claims.names().empty());
}

TEST_F(PodClaimsTest, WritesAnEventForAPodThatBypassedTheScheduler) {
  make_class("mine", "gpu.elasticgpu.io");
  make_claim("{}");
  claims.step({pod}, {}, clock.now());
  ASSERT_EQ(events().size(), 1U);
  EXPECT_THAT(events()[0], HasSubstr("ClaimNotAllocated"));
  EXPECT_THAT(events()[0], HasSubstr("kubernetes.io/hostname"));
  EXPECT_THAT(notices.refusals(), HasSubstr("pod ml/p: claim c has no allocation")) << "the Node reports it, too";
  claims.step({}, {}, clock.now());
  EXPECT_EQ(notices.refusals(), "") << "the pod is gone";
}

TEST_F(PodClaimsTest, IgnoresClaimsOfOtherDrivers) {
  make_class("theirs", "gpu.example.com");
  make_claim("{}", "theirs");
  claims.step({pod}, {}, clock.now());
  EXPECT_TRUE(events().empty());
}

}  // namespace
}  // namespace carve::node
