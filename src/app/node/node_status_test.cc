#include "app/node/node_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/plugins/testing/fake_node_slices.h"
#include "app/node/conditions.h"
#include "app/node/labels.h"
#include "app/node/node_report.h"
#include "app/node/runtime_cdi.h"
#include "app/node/totals.h"
#include "port/testing/fake_kube_api.h"

namespace carve::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Cdi = RuntimeVerdict::Cdi;

constexpr const char* kPath = "/api/v1/nodes/n1";

struct NodeStatusTest : ::testing::Test {
  carve::testing::FakeKubeApi kube;
  ManualClock clock;
  NodeStatus status{"n1", kube, clock};
  NodeWish wish;
  NodeStatusTest() {
    EXPECT_TRUE(kube.create("/api/v1/nodes",
                            R"({"metadata":{"name":"n1","labels":{"a":"b"}},"status":{}})"));
    hear();
    wish.labels = {{"elasticgpu.io/gpu.count", "2"}};
    wish.labels_known = true;
  }
  void hear() { status.replace(*kube.list("/api/v1/nodes", {})); }
  Result<bool> step() {
    auto done = status.step(wish);
    hear();
    return done;
  }
  std::size_t patches() { return kube.writes().size() - 1; }
};

TEST_F(NodeStatusTest, KeepsItsLabelsAndLeavesOthersAlone) {
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), HasSubstr(R"("elasticgpu.io/gpu.count":"2")"));
  EXPECT_THAT(*kube.get(kPath, {}), HasSubstr(R"("a":"b")"));
  ASSERT_TRUE(step());
  EXPECT_EQ(patches(), 1U);
  wish.labels = {};
  wish.labels_known = false;  // the driver does not answer: the labels stay
  clock.advance(seconds(3));
  ASSERT_TRUE(step());
  EXPECT_EQ(patches(), 1U);
  wish.labels_known = true;
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), ::testing::Not(HasSubstr("gpu.count")));
}

TEST_F(NodeStatusTest, SetsAConditionWhenATroubleLastsAndClearsItImmediately) {
  wish.labels = {};
  wish.conditions = {{"GPUArbiterAway", false, "ArbiterAnswers", ""}};
  ASSERT_TRUE(step());
  EXPECT_EQ(patches(), 0U);  // a condition that never was True is not written
  wish.conditions[0] = {"GPUArbiterAway", true, "ArbiterAway", "m"};
  EXPECT_TRUE(*step());
  EXPECT_EQ(patches(), 0U);
  clock.advance(NodeStatus::kLasting);
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), HasSubstr(R"("status":"True")"));
  wish.conditions[0] = {"GPUArbiterAway", false, "ArbiterAnswers", ""};
  clock.advance(NodeStatus::kGap);
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), HasSubstr(R"("status":"False")"));
}

TEST_F(NodeStatusTest, TouchesImmediatelyAndThenOnceASecond) {
  ASSERT_TRUE(status.touch());
  EXPECT_EQ(patches(), 0U);
  for (int i = 0; i < 10; ++i) {
    status.freed();
    ASSERT_TRUE(status.touch());
    clock.advance(milliseconds(50));
  }
  EXPECT_EQ(patches(), 1U);
  clock.advance(seconds(1));
  ASSERT_TRUE(status.touch());
  EXPECT_EQ(patches(), 2U);  // one for the nine others
  clock.advance(seconds(2));
  ASSERT_TRUE(status.touch());
  EXPECT_EQ(patches(), 2U);
  // If the API server does not answer, the touch is retried.
  status.freed();
  kube.set_away(true);
  EXPECT_FALSE(status.touch());
  kube.set_away(false);
  clock.advance(seconds(2));
  const auto before = patches();
  ASSERT_TRUE(status.touch());
  EXPECT_EQ(patches(), before + 1);
}

TEST_F(NodeStatusTest, SetsTotalsOnceAndRemovesThoseThatAClassMaps) {
  wish.labels = {};
  wish.totals = {{"elasticgpu.io/gpu-core", "200"}};
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), HasSubstr(R"("capacity":{"elasticgpu.io/gpu-core":"200"})"));
  ASSERT_TRUE(step());
  EXPECT_EQ(patches(), 2U);  // the total, and the annotation that names it
  wish.totals = {{"elasticgpu.io/gpu-core", std::nullopt}};
  clock.advance(NodeStatus::kGap);
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), ::testing::Not(HasSubstr(R"("elasticgpu.io/gpu-core":)")));
  clock.advance(NodeStatus::kGap);
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), ::testing::Not(HasSubstr("gpu-core")));
}

TEST_F(NodeStatusTest, WritesTheAnnotationBeforeTheTotals) {
  wish.labels = {};
  wish.totals = {{"elasticgpu.io/gpu-core", "200"}};
  kube.fail_next({.verb = "patch", .path = "/status"});
  EXPECT_FALSE(step());
  EXPECT_EQ(totals_set_on(*status.seen()), std::set<std::string>{"elasticgpu.io/gpu-core"});
  EXPECT_TRUE(status.seen()->capacity.empty());
  clock.advance(NodeStatus::kGap);
  ASSERT_TRUE(step());
  EXPECT_EQ(totals_set_on(*status.seen()), std::set<std::string>{"elasticgpu.io/gpu-core"});
  EXPECT_EQ(status.seen()->capacity.size(), 1U);
}

TEST_F(NodeStatusTest, WritesTotalsOfOtherVendorsNamesOnceToo) {
  wish.labels = {};
  wish.totals = {{"nvidia.com/gpu", "2"}, {"aliyun.com/gpu-mem", "158"}};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(step());
    clock.advance(NodeStatus::kGap);
  }
  EXPECT_EQ(patches(), 2U);
  wish.totals["nvidia.com/gpu"] = std::nullopt;
  ASSERT_TRUE(step());
  EXPECT_THAT(*kube.get(kPath, {}), ::testing::Not(HasSubstr(R"("nvidia.com/gpu":)")));
}

TEST(Conditions, ReportEachTroubleAsOneConditionWithCauseAndFix) {
  NodeFacts facts;
  facts.troubles.gpu = GpuState::kHanging;
  facts.troubles.gpu_reason = "NVML did not answer within 1 s";
  facts.unresolved = {"ml/p/main"};
  facts.unresolved_seen = 3;
  std::map<std::string, codec::NodeCondition> by_type;
  for (const auto& one : conditions_of(facts)) by_type[one.type] = one;
  EXPECT_TRUE(by_type.at("GPUDriverHanging").on);
  EXPECT_THAT(by_type.at("GPUDriverHanging").message, HasSubstr("within 1 s; "));
  EXPECT_FALSE(by_type.at("GPUDriverAbsent").on);
  facts.troubles.gpu_passing = true;
  for (const auto& one : conditions_of(facts)) {
    EXPECT_FALSE(one.type == "GPUDriverHanging" && one.on) << "one late answer";
  }
  EXPECT_THAT(by_type.at("GPUDevicesUnresolved").message, HasSubstr("ml/p/main (3 since the agent started)"));
  int on = 0;
  for (const auto& [type, one] : by_type) on += one.on ? 1 : 0;
  EXPECT_EQ(on, 2);
}

TEST(RuntimeCdi, IsJudgedByTheRuntimesConfigurationThenByItsVersion) {
  const auto judge = [](RuntimeFacts facts) {
    return judge_runtime(Result<RuntimeFacts>(std::move(facts)), "", "/var/run/cdi").cdi;
  };
  EXPECT_EQ(judge({"containerd", "2.3.7", true, {"/etc/cdi", "/run/cdi/"}}), Cdi::kWith);
  EXPECT_EQ(judge({"containerd", "2.3.7", false, {"/etc/cdi", "/var/run/cdi"}}), Cdi::kWithout);
  EXPECT_EQ(judge({"containerd", "2.3.7", true, {"/etc/cdi"}}), Cdi::kWithout);
  EXPECT_EQ(judge({"containerd", "v1.6.20", std::nullopt, {}}), Cdi::kWithout);
  EXPECT_EQ(judge({"containerd", "1.7.2", std::nullopt, {}}), Cdi::kUnknown);
  EXPECT_EQ(judge({"cri-o", "1.23.0", std::nullopt, {}}), Cdi::kWithout);
  EXPECT_EQ(judge({"cri-o", "1.31.0", std::nullopt, {}}), Cdi::kWith);
  EXPECT_EQ(judge({"other", "1", std::nullopt, {}}), Cdi::kUnknown);
  const Result<RuntimeFacts> away = fail(Code::kUnavailable, "away");
  EXPECT_EQ(judge_runtime(away, "containerd://1.6.1", "/var/run/cdi").cdi, Cdi::kWithout);
  EXPECT_EQ(judge_runtime(away, "", "/var/run/cdi").cdi, Cdi::kUnknown);
}

TEST(Labels, CountMixedModelsSeparately) {
  auto cards = plugins::some_cards(3);
  cards.cards[2].model = "NVIDIA L4 (SIMULATED)";
  cards.cards[2].memory = Bytes::gib(24);
  const auto labels = labels_of(cards);
  EXPECT_FALSE(labels.contains("elasticgpu.io/gpu.product"));
  EXPECT_EQ(labels.at("elasticgpu.io/gpu-model.NVIDIA-H200"), "2");
  EXPECT_EQ(labels.at("elasticgpu.io/gpu-model.NVIDIA-L4-SIMULATED"), "1");
  EXPECT_EQ(labels.at("elasticgpu.io/gpu.memory"), "24576");
  EXPECT_EQ(labels.at("elasticgpu.io/gpu.count"), "3");
  EXPECT_TRUE(labels_of({}).empty());
}

}  // namespace
}  // namespace carve::node
