#include "app/cli/cluster/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/cli/doctor.h"
#include "port/testing/fake_kube_api.h"

namespace carve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// A cluster without faults. Each test breaks one thing.
ClusterFacts healthy() {
  ClusterFacts facts;
  facts.server = {"v1.36.3", 36};
  facts.crd = facts.control_wanted = facts.own_scheduler = true;
  facts.agents = facts.arbiters = codec::Workload{"carve-agent", 2, 2, 2};
  facts.control = codec::Workload{"carve-control", 2, 2, 2};
  facts.scheduler = codec::Workload{"carve-scheduler", 1, 1, 1};
  facts.leader = "a@10.0.0.1:8443";
  facts.lease_age_s = 2;
  facts.lease_seconds = 10;
  facts.nonsense = "gpu-core: 7777 is above 100";
  facts.nodes.push_back({"n1", true, true, false, {{"GPUDriverAbsent", false, "DriverAnswers", ""}}, {}, false, true});
  codec::GpuObject gpu;
  gpu.node = "n1";
  gpu.card.health.ok = true;
  facts.cards.push_back(gpu);
  return facts;
}

std::string rendered(const ClusterFacts& facts) { return render_findings(diagnose_cluster(facts), std::nullopt); }

TEST(ClusterDoctor, AHealthyClusterHasNoFindings) { EXPECT_EQ(rendered(healthy()), "nothing is wrong\n"); }

TEST(ClusterDoctor, AnInstallationWithoutControlIsComplete) {
  auto facts = healthy();
  facts.control_wanted = false;
  facts.control = facts.scheduler = std::nullopt;
  facts.nonsense = std::nullopt;
  EXPECT_EQ(rendered(facts), "nothing is wrong\n");
}

TEST(ClusterDoctor, ReportsEveryFaultWithItsFix) {
  struct Row {
    const char* id;
    void (*break_it)(ClusterFacts&);
    const char* says;
  };
  const Row rows[] = {
      {"kubernetes-too-old",
       [](ClusterFacts& f) {
         f.server = {"v1.33.9", 33};
       },
       "v1.33.9; "},
      {"not-installed", [](ClusterFacts& f) { f.crd = false; }, "Carve is not installed"},
      {"not-installed", [](ClusterFacts& f) { f.arbiters.reset(); }, "DaemonSet carve-arbiter is not installed"},
      {"not-installed", [](ClusterFacts& f) { f.control.reset(); }, "Deployment carve-control is not installed"},
      {"not-installed", [](ClusterFacts& f) { f.scheduler.reset(); }, "Deployment carve-scheduler is not installed"},
      {"none-ready", [](ClusterFacts& f) { f.control->ready = 0; }, "no pod of Deployment carve-control is ready"},
      {"none-ready",
       [](ClusterFacts& f) {
         f.control = codec::Workload{"carve-control", 0, 0, 0};
       },
       "0 of 0"},
      {"not-all-ready", [](ClusterFacts& f) { f.agents->ready = 1; }, "1 of 2"},
      {"no-leader", [](ClusterFacts& f) { f.leader.clear(); }, "no replica of carve-control is the leader"},
      {"no-leader", [](ClusterFacts& f) { f.lease_age_s = 21; }, "renewed Lease carve-control 21 s ago"},
      {"policies-missing",
       [](ClusterFacts& f) {
         f.policies_missing = {"p1", "p2"};
       },
       "missing: p1, p2"},
      {"webhook-missing", [](ClusterFacts& f) { f.webhooks_missing = {"w1"}; }, "missing: w1"},
      {"webhook-authority", [](ClusterFacts& f) { f.webhooks_without_authority = {"w1"}; }, "no caBundle in w1"},
      {"nonsense-admitted", [](ClusterFacts& f) { f.nonsense = ""; },
       "gpu-core: 7777; legal are 0 to 100 and multiples of 100"},
      {"webhook-down", [](ClusterFacts& f) { f.nonsense = "failed calling webhook"; }, "failed calling webhook"},
      {"node-condition",
       [](ClusterFacts& f) {
         f.nodes[0].conditions[0] = {"GPUDriverAbsent", true, "DriverAbsent", "no driver; install it"};
       },
       "cause: no driver\n        fix:   install it"},
      {"agent-not-ready", [](ClusterFacts& f) { f.nodes[0].agent_ready = false; },
       "node n1 has cards but no ready agent"},
      {"mapped-and-served", [](ClusterFacts& f) { f.nodes[0].mapped_and_served = {"nvidia.com/gpu: 4"}; },
       "nvidia.com/gpu: 4"},
      {"card-unhealthy",
       [](ClusterFacts& f) {
         f.cards[0].card.health = {false, "XID 79"};
       },
       "XID 79"},
      {"conflict",
       [](ClusterFacts& f) {
         f.conflicts.push_back({"n1", {Owner{OwnerKind::kPod, "u-1"}, CardId("GPU-0"), "full"}});
       },
       "u-1 on GPU-0: full"},
      {"slices-missing",
       [](ClusterFacts& f) {
         f.nodes[0].serves_claims = true;
         f.nodes[0].slices_published = false;
       },
       "node n1 offers its cards to claims but has no ResourceSlice"},
      {"settings-invalid",
       [](ClusterFacts& f) {
         f.settings = {{"carve-system/carve-agent", "carve.conf:1: simulate"}};
       },
       "ConfigMap carve-system/carve-agent has invalid settings"},
      {"pod-not-ending",
       [](ClusterFacts& f) {
         PodFacts pod;
         pod.name = "ml/a";
         pod.node = "n1";
         pod.waits.terminating_s = 600;
         f.pods = {pod};
       },
       "pod ml/a has been terminating for 600 s"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.id);
    auto facts = healthy();
    row.break_it(facts);
    const auto findings = diagnose_cluster(facts);
    EXPECT_TRUE(anything_wrong(findings));
    EXPECT_THAT(rendered(facts), HasSubstr(std::string("[") + row.id + "]"));
    EXPECT_THAT(rendered(facts), HasSubstr(row.says));
    EXPECT_EQ(findings.size(), 1U) << rendered(facts);
  }
}

TEST(ClusterDoctor, ANodeWithoutCardsNeedsNoDriver) {
  auto facts = healthy();
  const codec::NodeCondition absent{"GPUDriverAbsent", true, "DriverAbsent", "no driver; install it"};
  facts.nodes.push_back({"cpu-1", true, true, false, {absent}, {}, false, true});
  facts.nodes.push_back({"cpu-2", true, true, false, {absent}, {}, false, true});
  EXPECT_FALSE(anything_wrong(diagnose_cluster(facts)));
  EXPECT_THAT(rendered(facts), HasSubstr("2 node(s) have no driver and no known card [no-cards]"));
  EXPECT_THAT(rendered(facts), HasSubstr("cpu-1, cpu-2"));
  facts.nodes.back().labelled = true;
  EXPECT_TRUE(anything_wrong(diagnose_cluster(facts)));
  EXPECT_THAT(rendered(facts), HasSubstr("node cpu-2: GPUDriverAbsent"));
  facts.nodes.back().labelled = false;
  facts.nodes.back().conditions = {{"GPUArbiterAway", true, "ArbiterAway", "gone; see its pod"}};
  EXPECT_THAT(rendered(facts), HasSubstr("node cpu-2: GPUArbiterAway"));
}

TEST(ClusterDoctor, UnreadableObjectsAndWaitingPodsAreNotFaults) {
  auto facts = healthy();
  facts.unread = {"/api/v1/x: forbidden"};
  facts.waiting.push_back({"ml", "a", "4 GiB", "no room"});
  EXPECT_FALSE(anything_wrong(diagnose_cluster(facts)));
  EXPECT_THAT(rendered(facts), HasSubstr("not checked: /api/v1/x"));
  EXPECT_THAT(rendered(facts), HasSubstr("first: ml/a requests 4 GiB: no room"));
}

class ClusterDoctorReads : public ::testing::Test {
 protected:
  void SetUp() override { kube_.answer("/version", R"({"minor":"36","gitVersion":"v1.36.3"})"); }
  ClusterFacts look(const std::string& namespace_name = "carve-system") {
    const auto facts = look_at_cluster({kube_, clock_, log_, {}, {}, namespace_name}, "carve-scheduler");
    EXPECT_TRUE(facts) << facts.error().what;
    return facts ? *facts : ClusterFacts();
  }

  testing::FakeKubeApi kube_;
  SystemClock clock_;
  Log log_{[](std::string_view) {}};
};

TEST_F(ClusterDoctorReads, AgentsThatAreNotReadyAndResourceNamesServedTwice) {
  kube_.put("/api/v1/nodes/n1",
            R"({"metadata":{"name":"n1","labels":{"nvidia.com/gpu.present":"true"}},)"
            R"("status":{"allocatable":{"nvidia.com/gpu":"4"},"conditions":[)"
            R"({"type":"Ready","status":"True"},{"type":"MemoryPressure","status":"True"},)"
            R"({"type":"GPUDriverAbsent","status":"True","message":"no driver; install it"}]}})");
  kube_.put("/apis/resource.k8s.io/v1/deviceclasses/whole",
            R"({"metadata":{"name":"whole"},"spec":{"extendedResourceName":"nvidia.com/gpu"}})");
  kube_.put("/api/v1/namespaces/carve-system/pods/a",
            R"({"metadata":{"name":"a","namespace":"carve-system","uid":"u","labels":)"
            R"({"app.kubernetes.io/name":"carve","app.kubernetes.io/component":"agent"}},)"
            R"("spec":{"nodeName":"n1","containers":[]},"status":{"conditions":[{"type":"Ready","status":"False"}]}})");
  const auto facts = look();
  ASSERT_EQ(facts.nodes.size(), 1U);
  EXPECT_TRUE(facts.nodes[0].ready);
  EXPECT_FALSE(facts.nodes[0].agent_ready);
  EXPECT_TRUE(facts.nodes[0].labelled);
  EXPECT_THAT(facts.nodes[0].mapped_and_served, ::testing::ElementsAre("nvidia.com/gpu: 4"));
  ASSERT_EQ(facts.nodes[0].conditions.size(), 1U);
  EXPECT_EQ(facts.nodes[0].conditions[0].type, "GPUDriverAbsent");
}

/// A node was deleted and registered again, and its agent kept the UID of the old Node.
TEST_F(ClusterDoctorReads, ANodeThatServesClaimsWithoutResourceSlices) {
  kube_.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1"}})");
  kube_.put("/apis/elasticgpu.io/v1alpha1/gpus/n1.gpu-0",
            R"({"metadata":{"name":"n1.gpu-0"},"spec":{"index":0,"uuid":"GPU-0","model":"NVIDIA T4",)"
            R"("memory":17179869184,"nodeName":"n1","plugins":["dra"]},"status":{"state":"Healthy"}})");
  auto facts = look();
  ASSERT_EQ(facts.nodes.size(), 1U);
  EXPECT_TRUE(facts.nodes[0].serves_claims);
  EXPECT_FALSE(facts.nodes[0].slices_published);
  kube_.put(
      "/apis/resource.k8s.io/v1/resourceslices/s",
      R"({"metadata":{"name":"s"},"spec":{"driver":"gpu.elasticgpu.io","nodeName":"n1","devices":[{"name":"d"}]}})");
  facts = look();
  EXPECT_TRUE(facts.nodes[0].slices_published);
}

TEST_F(ClusterDoctorReads, ADeletedNodeHasNoFindings) {
  kube_.put("/apis/elasticgpu.io/v1alpha1/gpus/n9.gpu-0",
            R"({"metadata":{"name":"n9.gpu-0"},"spec":{"index":0,"uuid":"GPU-0","model":"NVIDIA T4",)"
            R"("memory":17179869184,"nodeName":"n9","plugins":["slots"]},)"
            R"("status":{"state":"Unhealthy","reason":"gone",)"
            R"("holders":[{"owner":{"kind":"pod","uid":"u-a","namespace":"ml","name":"a"},"part":"main",)"
            R"("memory":13958643712,"cores":80,"whole":false,"shareClass":"burst","priorityClass":"standard"},)"
            R"({"owner":{"kind":"pod","uid":"u-b","namespace":"ml","name":"b"},"part":"main",)"
            R"("memory":13958643712,"cores":80,"whole":false,"shareClass":"burst","priorityClass":"standard"}]}})");
  const auto facts = look();
  EXPECT_THAT(facts.conflicts, IsEmpty());
  EXPECT_THAT(rendered(facts), Not(HasSubstr("n9")));
}

TEST_F(ClusterDoctorReads, TheGivenNamespace) {
  const std::string workload = R"({"metadata":{"name":"x"},"status":{"desiredNumberScheduled":3,"numberReady":3}})";
  kube_.put("/apis/apps/v1/namespaces/gpus/daemonsets/carve-agent", workload);
  kube_.put("/apis/apps/v1/namespaces/gpus/deployments/carve-control", workload);
  kube_.put("/apis/coordination.k8s.io/v1/namespaces/gpus/leases/carve-control",
            R"({"metadata":{"name":"carve-control"},"spec":{"holderIdentity":"a@10.0.0.1:8443"}})");
  kube_.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1"}})");
  kube_.put("/api/v1/namespaces/gpus/pods/a",
            R"({"metadata":{"name":"a","namespace":"gpus","uid":"u","labels":)"
            R"({"app.kubernetes.io/name":"carve","app.kubernetes.io/component":"agent"}},)"
            R"("spec":{"nodeName":"n1","containers":[]},"status":{"conditions":[{"type":"Ready","status":"True"}]}})");
  const auto facts = look("gpus");
  ASSERT_TRUE(facts.agents && facts.control);
  EXPECT_EQ(facts.agents->ready, 3);
  EXPECT_EQ(facts.leader, "a@10.0.0.1:8443");
  ASSERT_EQ(facts.nodes.size(), 1U);
  EXPECT_TRUE(facts.nodes[0].agent_ready);
  const auto elsewhere = look();
  EXPECT_FALSE(elsewhere.agents || elsewhere.control);
  EXPECT_THAT(rendered(elsewhere), HasSubstr("no such object in namespace carve-system"));
  EXPECT_THAT(rendered(elsewhere), HasSubstr("--carve-namespace"));
}

TEST_F(ClusterDoctorReads, AForbiddenObjectIsNotReportedAsMissing) {
  testing::FakeKubeApi::Fault fault;
  fault.path = "validatingadmissionpolicies/";
  fault.code = Code::kPermissionDenied;
  fault.times = 100;
  kube_.fail_next(fault);
  const auto facts = look();
  EXPECT_THAT(facts.unread, Not(IsEmpty()));
  for (const auto& missing : facts.policies_missing) EXPECT_THAT(missing, Not(HasSubstr("agent-nodes/")));
  EXPECT_EQ(facts.policies_missing.size(), 5U);  // the bindings, which the caller may read and which do not exist
}

TEST_F(ClusterDoctorReads, TheReasonForWhichAPodWaitsIsTheSameAsControls) {
  kube_.put("/api/v1/nodes/n1", R"({"metadata":{"name":"n1"}})");
  kube_.put("/apis/elasticgpu.io/v1alpha1/gpus/n1.gpu-0",
            R"({"metadata":{"name":"n1.gpu-0"},"spec":{"index":0,"uuid":"GPU-0","model":"NVIDIA T4",)"
            R"("memory":17179869184,"nodeName":"n1","plugins":["slots"]},"status":{"state":"Healthy"}})");
  kube_.put("/api/v1/namespaces/ml/pods/b",
            R"({"metadata":{"name":"b","namespace":"ml","uid":"u-b"},"spec":{"containers":[{"name":"main",)"
            R"("resources":{"limits":{"elasticgpu.io/gpu-memory":"1024","elasticgpu.io/slot":"1"}}}]},)"
            R"("status":{"phase":"Pending"}})");
  kube_.put("/api/v1/namespaces/kube-system/configmaps/unhealthy-gpu-n1",
            R"({"metadata":{"name":"unhealthy-gpu-n1"},"data":{"gpus":"0"}})");
  EXPECT_THAT(rendered(look()), HasSubstr("ConfigMap kube-system/unhealthy-gpu-n1 names it"));
  testing::FakeKubeApi::Fault fault;
  fault.path = "kube-system/configmaps";
  fault.code = Code::kPermissionDenied;
  kube_.fail_next(fault);
  EXPECT_THAT(rendered(look()), HasSubstr("not checked: ConfigMaps of kube-system"));
}

}  // namespace
}  // namespace carve::cli
