#include "app/cli/cluster/stuck_pods.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "port/testing/fake_kube_api.h"

namespace carve::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kNow = 1767225700;  // 2026-01-01T00:01:40Z

class StuckPods : public ::testing::Test {
 protected:
  StuckPods() { nodes["n1"] = {true, true, true, true}; }
  /// A pod on n1 that has its claim.
  static PodFacts with_claim(bool prepared) {
    PodFacts pod;
    pod.name = "ml/a";
    pod.node = "n1";
    pod.waits.pending = true;
    pod.waits.bound_s = kPreparesWithin;
    pod.claims.push_back({"c", true, "n1", prepared, ""});
    return pod;
  }
  static PodFacts terminating() {
    auto pod = with_claim(true);
    pod.waits.pending = false;
    pod.waits.terminating_s = kEndsWithin;
    return pod;
  }
  /// "id: what / cause / fix" of all findings.
  std::string found(const std::vector<PodFacts>& pods) {
    std::string text;
    for (const auto& one : stuck_pods(pods, nodes))
      text += fmt::format("{}: {} / {} / {}\n", one.id, one.what, one.cause, one.fix);
    return text;
  }
  std::map<std::string, PodsNode> nodes;
};

TEST_F(StuckPods, PodsThatStartAndEndInTimeAreNoFinding) {
  auto young = with_claim(false);
  young.waits.bound_s = kPreparesWithin - 1;
  auto ends = terminating();
  ends.waits.terminating_s = kEndsWithin - 1;
  auto grace = terminating();
  grace.waits.terminating_s = -20;
  auto runs = with_claim(true);
  runs.waits.pending = false;
  EXPECT_EQ(found({young, ends, grace, runs}), "");
}

TEST_F(StuckPods, APodThatDoesNotEndNamesThePluginsThatItsNodeLacks) {
  nodes["n1"].serves_claims = false;
  EXPECT_THAT(found({terminating()}),
              AllOf(HasSubstr("pod-not-ending: pod ml/a has been terminating for 60 s"),
                    HasSubstr("does not offer the DRA driver (the setting plugins does not contain dra)"),
                    HasSubstr("add dra to plugins in ConfigMap carve-cluster")));
}

TEST_F(StuckPods, APodThatDoesNotEndNamesItsNodesTrouble) {
  EXPECT_THAT(found({terminating()}), HasSubstr("processes of it may still run"));
  nodes["n1"].agent_ready = false;
  EXPECT_THAT(found({terminating()}), HasSubstr("node n1 has no ready agent"));
  nodes["n1"].ready = false;
  EXPECT_THAT(found({terminating()}), HasSubstr("node n1 is not ready"));
  nodes.clear();
  EXPECT_THAT(found({terminating()}), HasSubstr("node n1 does not exist"));
  auto kept = terminating();
  kept.waits.finalizers = {"a/b"};
  EXPECT_THAT(found({kept}), HasSubstr("metadata.finalizers are not removed: a/b"));
}

TEST_F(StuckPods, AClaimThatIsNotPreparedSaysWhy) {
  auto pod = with_claim(false);
  EXPECT_THAT(found({pod}), AllOf(HasSubstr("claim-not-prepared: pod ml/a has waited on node n1 for 60 s for claim c"),
                                  HasSubstr("has not reported the claim as prepared")));
  pod.claims[0].refused = "the card is full";
  EXPECT_THAT(found({pod}), AllOf(HasSubstr("/ the card is full /"), HasSubstr("delete the pod")));
  pod.claims[0] = {"c", false, "", false, ""};
  EXPECT_THAT(found({pod}), HasSubstr("the claim is not allocated"));
  pod.claims[0] = {"c", true, "n1", false, ""};
  nodes["n1"].serves_claims = false;
  EXPECT_THAT(found({pod}), HasSubstr("plugins does not contain dra"));
}

TEST_F(StuckPods, APodThatWasBoundLongAgoAndHasNotStartedIsNamed) {
  auto pod = with_claim(true);
  pod.claims.clear();
  pod.slots = true;
  EXPECT_EQ(found({pod}), "") << "its image may be large";
  pod.waits.bound_s = kStartsWithin;
  const auto findings = stuck_pods({pod}, nodes);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kNote);
  pod.waits.bound_s = kPreparesWithin;
  nodes["n1"].agent_ready = false;
  EXPECT_THAT(found({pod}), HasSubstr("pod-not-starting: pod ml/a was bound to node n1 60 s ago"));
}

TEST_F(StuckPods, AStaticPodWithoutSlotsIsNamed) {
  PodFacts pod;
  pod.name = "ml/s-n1";
  pod.node = "n1";
  pod.asks_without_slots = "elasticgpu.io/gpu-memory";
  EXPECT_THAT(found({pod}), AllOf(HasSubstr("static-pod-without-cards: static pod ml/s-n1 runs without a card"),
                                  HasSubstr("elasticgpu.io/gpu-memory but no elasticgpu.io/slot")));
}

TEST_F(StuckPods, PodsThatWaitForAnAllocationAreOneNote) {
  auto pod = with_claim(false);
  pod.node.clear();
  pod.waits.bound_s.reset();
  pod.claims[0].allocated = false;
  const auto findings = stuck_pods({pod, pod}, nodes);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kNote);
  EXPECT_EQ(findings[0].what, "2 pod(s) wait for the allocation of a claim");
}

TEST_F(StuckPods, PodsWithClaimsOnANodeThatNoLongerServesClaimsAreOneNote) {
  auto pod = with_claim(true);
  pod.waits.pending = false;
  nodes["n1"].serves_claims = false;
  const auto findings = stuck_pods({pod, pod}, nodes);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].severity, Severity::kNote);
  EXPECT_EQ(findings[0].id, "claims-left");
  EXPECT_THAT(findings[0].cause, HasSubstr("first: ml/a on node n1"));
}

TEST_F(StuckPods, ManyStuckPodsAreCounted) {
  const auto findings = stuck_pods(std::vector<PodFacts>(kMostStuck + 3, terminating()), nodes);
  ASSERT_EQ(findings.size(), kMostStuck);
  EXPECT_THAT(findings.back().cause, HasSubstr("and 3 more pods with this finding"));
}

TEST(PodsWithCards, ReadsThePodsThatConcernCardsAndTheirClaims) {
  testing::FakeKubeApi kube;
  kube.put("/apis/resource.k8s.io/v1/deviceclasses/fraction",
           R"({"metadata":{"name":"fraction"},"spec":{"x":"gpu.elasticgpu.io"}})");
  const std::string with_claim =
      R"({"metadata":{"namespace":"ml","name":"a","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{)"
      R"("nodeName":"n1","resourceClaims":[{"name":"g","resourceClaimName":"c"}],"containers":[{"name":"m",)"
      R"("resources":{"claims":[{"name":"g"}]}}]},"status":{"phase":"Pending"}})";
  const std::string other = R"({"metadata":{"namespace":"ml","name":"b","uid":"v"},"spec":{"containers":[]}})";
  const std::string claim =
      R"({"metadata":{"namespace":"ml","name":"c","uid":"w"},"spec":{"devices":{"requests":[{"name":"g","exactly":{)"
      R"("deviceClassName":"fraction"}}]}},"status":{"allocation":{"devices":{"results":[{"request":"g","driver":)"
      R"("gpu.elasticgpu.io","pool":"n1","device":"d","shareID":"s"}]}},"devices":[{"pool":"n1","device":"d",)"
      R"("shareID":"s","conditions":[{"type":"Ready","status":"False","message":"full"}]}]}})";
  const auto pods = pods_with_cards(kube, {with_claim, other}, {claim}, kNow);
  ASSERT_EQ(pods.size(), 1U);
  EXPECT_EQ(pods[0].name, "ml/a");
  EXPECT_EQ(pods[0].waits.bound_s, 100);
  ASSERT_EQ(pods[0].claims.size(), 1U);
  EXPECT_TRUE(pods[0].claims[0].allocated);
  EXPECT_FALSE(pods[0].claims[0].prepared);
  EXPECT_EQ(pods[0].claims[0].refused, "full");
  EXPECT_THAT(pods_with_cards(kube, {other}, {claim}, kNow), IsEmpty());
}

}  // namespace
}  // namespace carve::cli
