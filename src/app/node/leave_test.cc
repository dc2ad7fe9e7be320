#include "app/node/leave.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/node/plugin_conflict.h"
#include "port/testing/fake_kube_api.h"

namespace carve::node {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPath = "/api/v1/nodes/n1";
const std::vector<std::string> kTotals = {"elasticgpu.io/gpu", "nvidia.com/gpu"};

struct LeaveTest : ::testing::Test {
  carve::testing::FakeKubeApi kube;
  void node(const std::string& conditions) {
    ASSERT_TRUE(kube.create(
        "/api/v1/nodes",
        R"({"metadata":{"name":"n1","labels":{"a":"b","elasticgpu.io/gpu.count":"2","elasticgpu.io/serve":"true"},)"
        R"("annotations":{"elasticgpu.io/slices-freed":"t","elasticgpu.io/slices-free":"t","other":"x"}},)"
        R"("status":{"capacity":{"cpu":"4","elasticgpu.io/gpu":"2","nvidia.com/gpu":"2","elasticgpu.io/slot":"0"},)"
        R"("conditions":[)" +
            conditions + "]}}"));
  }
};

TEST_F(LeaveTest, RemovesWhatCarveWroteAndKeepsTheRest) {
  node(R"({"type":"Ready","status":"True"},{"type":"RuntimeWithoutCDI","status":"False"},)"
       R"({"type":"GPUAgentLeaving","status":"True"})");
  const auto gone = leave_node(kube, "n1", kTotals);
  ASSERT_TRUE(gone) << gone.error().what;
  for (const auto* name : {"elasticgpu.io/gpu.count", "elasticgpu.io/slices-freed", "elasticgpu.io/slices-free",
                           "elasticgpu.io/gpu", "nvidia.com/gpu", "RuntimeWithoutCDI", "GPUAgentLeaving"}) {
    EXPECT_THAT(*gone, Contains(name));
  }
  const auto now = *kube.get(kPath);
  for (const auto* stays :
       {R"("a":"b")", "elasticgpu.io/serve", R"("other":"x")", R"("cpu":"4")", "elasticgpu.io/slot"})
    EXPECT_THAT(now, HasSubstr(stays));
  for (const auto* goes : {"gpu.count", "RuntimeWithoutCDI", "GPUAgentLeaving", "slices-free", "nvidia.com/gpu",
                           R"("elasticgpu.io/gpu":)"})
    EXPECT_THAT(now, Not(HasSubstr(goes)));
}

// Otherwise control would go on placing pods on the cards of a node that belongs to another system now.
TEST_F(LeaveTest, RemovesTheGpuObjectsOfThisNodeFirst) {
  node(R"({"type":"Ready","status":"True"})");
  const auto gpu = [](const std::string& name) { return "/apis/elasticgpu.io/v1alpha1/gpus/" + name; };
  kube.put(gpu("n1.gpu-a"), R"({"spec":{"nodeName":"n1"}})");
  kube.put(gpu("n1.gpu-b"), R"({"spec":{"nodeName":"n1"}})");
  kube.put(gpu("n2.gpu-c"), R"({"spec":{"nodeName":"n2"}})");
  kube.fail_next({.verb = "patch", .path = "nodes"});
  EXPECT_FALSE(leave_node(kube, "n1", kTotals)) << "the GPU objects are removed first";
  EXPECT_FALSE(kube.object(gpu("n1.gpu-a")));
  EXPECT_FALSE(kube.object(gpu("n1.gpu-b")));
  EXPECT_TRUE(kube.object(gpu("n2.gpu-c")));
  const auto gone = leave_node(kube, "n1", kTotals);
  ASSERT_TRUE(gone) << gone.error().what;
  EXPECT_THAT(*gone, Contains("elasticgpu.io/gpu"));
}

/// An agent with other settings set it.
TEST_F(LeaveTest, RemovesATotalThatTheNodeAttributesToAnAgent) {
  node(R"({"type":"Ready","status":"True"})");
  ASSERT_TRUE(kube.patch(kPath, KubePatch::kMerge,
                         R"({"metadata":{"annotations":{"elasticgpu.io/totals-set":"nvidia.com/gpu"}}})"));
  kube.fail_next({.verb = "patch", .path = "/status"});
  EXPECT_FALSE(leave_node(kube, "n1", {}));
  ASSERT_TRUE(leave_node(kube, "n1", {})) << "the annotation still names it";
  EXPECT_THAT(*kube.get(kPath), Not(HasSubstr("nvidia.com/gpu")));
  EXPECT_THAT(*kube.get(kPath), Not(HasSubstr("totals-set")));
  EXPECT_THAT(*kube.get(kPath), HasSubstr(R"("elasticgpu.io/gpu":)")) << "no annotation names this one";
}

TEST_F(LeaveTest, KeepsATotalThatAnotherPluginServes) {
  node(R"({"type":"ConflictingPlugin","status":"True","message":")" + codec::conflict_words("nvidia.com/gpu", 7) +
       R"(; pods"})");
  ASSERT_TRUE(leave_node(kube, "n1", kTotals));
  EXPECT_THAT(*kube.get(kPath), HasSubstr(R"("nvidia.com/gpu":"2")"));
  EXPECT_THAT(*kube.get(kPath), Not(HasSubstr(R"("elasticgpu.io/gpu":)")));
}

TEST_F(LeaveTest, KeepsATotalThatCarveDidNotSet) {
  node(R"({"type":"Ready","status":"True"})");
  ASSERT_TRUE(leave_node(kube, "n1", {}));
  EXPECT_THAT(*kube.get(kPath), HasSubstr(R"("nvidia.com/gpu":"2")"));
}

TEST_F(LeaveTest, WritesNothingTwiceAndReportsAnUnknownNode) {
  node(R"({"type":"Ready","status":"True"})");
  ASSERT_TRUE(leave_node(kube, "n1", kTotals));
  const auto writes = kube.writes().size();
  const auto again = leave_node(kube, "n1", kTotals);
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->empty());
  EXPECT_EQ(kube.writes().size(), writes);
  const auto other = leave_node(kube, "n2", kTotals);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kNotFound);
}

TEST_F(LeaveTest, FindsThePodsWithARecordOrAClaimOfCarve) {
  const auto pod = [&](const std::string& name, const std::string& metadata, const std::string& spec,
                       const std::string& status) {
    ASSERT_TRUE(kube.create("/api/v1/namespaces/ml/pods",
                            R"({"metadata":{"namespace":"ml","uid":"u-)" + name + R"(","name":")" + name + "\"" +
                                metadata + R"(},"spec":{"nodeName":"n1")" + spec + R"(},"status":{"phase":")" + status +
                                R"("}})"));
  };
  const auto claim = [&](const std::string& name, const std::string& driver) {
    ASSERT_TRUE(kube.create("/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims",
                            R"({"metadata":{"namespace":"ml","name":")" + name +
                                R"("},"status":{"allocation":{"devices":{"results":[{"driver":")" + driver +
                                R"("}]}}}})"));
  };
  const auto with = [](const std::string& name) {
    return R"(,"resourceClaims":[{"name":"c","resourceClaimName":")" + name +
           R"("}],"containers":[{"name":"main","resources":{"claims":[{"name":"c"}]}}])";
  };
  const std::string record = R"(,"annotations":{"carve.elasticgpu.io/record":"{}"})";
  pod("plain", "", "", "Running");
  pod("recorded", record, "", "Running");
  pod("ended", record, "", "Succeeded");
  claim("ours", "gpu.elasticgpu.io");
  claim("others", "nic.example.com");
  pod("claiming", "", with("ours"), "Running");
  pod("networking", "", with("others"), "Running");
  pod("waiting", "", with("none"), "Pending");
  const auto found = holders_on(kube, "n1");
  ASSERT_TRUE(found) << found.error().what;
  EXPECT_THAT(*found, ::testing::UnorderedElementsAre("ml/recorded", "ml/claiming"));
  EXPECT_TRUE(holders_on(kube, "n2")->empty());
}

}  // namespace
}  // namespace carve::node
