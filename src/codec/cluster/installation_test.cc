#include "codec/cluster/installation.h"

#include <gtest/gtest.h>

#include "codec/cluster/lease.h"
#include "codec/cluster/notes.h"

namespace carve::codec {
namespace {

TEST(Installation, ReadsTheReadyPodsOfADeploymentAndADaemonSet) {
  const auto deployment = parse_workload(
      R"({"metadata":{"name":"carve-control"},"spec":{"replicas":2},)"
      R"("status":{"readyReplicas":1,"updatedReplicas":2}})");
  ASSERT_TRUE(deployment);
  EXPECT_EQ(deployment->wanted, 2);
  EXPECT_EQ(deployment->ready, 1);
  EXPECT_EQ(deployment->updated, 2);
  const auto everywhere = parse_workload(
      R"({"metadata":{"name":"carve-agent"},)"
      R"("status":{"desiredNumberScheduled":3,"numberReady":2,"updatedNumberScheduled":1}})");
  ASSERT_TRUE(everywhere);
  EXPECT_EQ(everywhere->wanted, 3);
  EXPECT_EQ(everywhere->ready, 2);
  EXPECT_EQ(everywhere->updated, 1);
  EXPECT_FALSE(parse_workload("[]"));
  EXPECT_FALSE(parse_workload("{"));
}

TEST(Installation, ReadyIsACondition) {
  EXPECT_TRUE(
      is_ready(R"({"status":{"conditions":[{"type":"A","status":"False"},{"type":"Ready","status":"True"}]}})"));
  EXPECT_FALSE(is_ready(R"({"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}})"));
  EXPECT_FALSE(is_ready(R"({"status":{"conditions":[{"type":"A","status":"True"}]}})"));
  EXPECT_FALSE(is_ready("{}"));
  EXPECT_FALSE(is_ready("{"));
}

TEST(Installation, APodsWaitsAreCountedFromItsConditionsAndItsDeletion) {
  constexpr std::int64_t kNow = 1767225700;  // 2026-01-01T00:01:40Z
  const auto waits =
      pod_waits(R"({"metadata":{"creationTimestamp":"2025-01-01T00:00:00Z","deletionTimestamp":"2026-01-01T00:01:00Z",)"
                R"("finalizers":["a/b"]},"spec":{"nodeName":"n1"},"status":{"phase":"Pending","conditions":[)"
                R"({"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:10Z"}]}})",
                kNow);
  EXPECT_TRUE(waits.pending);
  EXPECT_EQ(waits.bound_s, 90);
  EXPECT_EQ(waits.terminating_s, 40);
  EXPECT_EQ(waits.finalizers, std::vector<std::string>{"a/b"});
  const auto free = pod_waits(R"({"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{}})", kNow);
  EXPECT_FALSE(free.bound_s || free.terminating_s);
  EXPECT_EQ(
      pod_waits(R"({"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"n"}})", kNow).bound_s,
      100)
      << "no scheduler chose the node of this pod";
  EXPECT_FALSE(pod_waits("{", kNow).pending);
}

TEST(Installation, AResourcesNameHasDotsAndASlash) {
  const char* node = R"({"status":{"allocatable":{"nvidia.com/gpu":"4"}}})";
  EXPECT_EQ(allocatable_of(node, "nvidia.com/gpu"), "4");
  EXPECT_EQ(allocatable_of(node, "amd.com/gpu"), "");
  EXPECT_EQ(allocatable_of("{", "amd.com/gpu"), "");
}

TEST(Installation, ALabelOfAnyToolShowsThatANodeHasCards) {
  const auto labelled = [](const std::string& label) {
    return labelled_with_cards(R"({"metadata":{"labels":{"kubernetes.io/os":"linux",)" + label + "}}}");
  };
  EXPECT_TRUE(labelled(R"("elasticgpu.io/gpu.count":"2")"));
  EXPECT_TRUE(labelled(R"("nvidia.com/gpu.present":"true")"));
  EXPECT_TRUE(labelled(R"("feature.node.kubernetes.io/pci-0302_10de.present":"true")"));
  EXPECT_TRUE(labelled(R"("cloud.google.com/gke-accelerator":"nvidia-tesla-t4")"));
  EXPECT_FALSE(labelled(R"("nvidia.com/gpu.present":"false")"));
  EXPECT_FALSE(labelled(R"("feature.node.kubernetes.io/pci-0300_1a03.present":"true")"));
  EXPECT_FALSE(labelled(R"("elasticgpu.io/serve":"true")"));
  EXPECT_FALSE(labelled(R"("feature.node.kubernetes.io/pci-0302_10de.present":"false")"));
  EXPECT_FALSE(labelled(R"("example.com/10de.present":"true")"));
  EXPECT_FALSE(labelled_with_cards("{}"));
  EXPECT_FALSE(labelled_with_cards("{"));
}

TEST(Installation, EveryWebhookNeedsACaBundle) {
  EXPECT_TRUE(has_authority(R"({"webhooks":[{"clientConfig":{"caBundle":"QQ=="}}]})"));
  EXPECT_FALSE(has_authority(R"({"webhooks":[{"clientConfig":{"caBundle":"QQ=="}},{"clientConfig":{}}]})"));
  EXPECT_FALSE(has_authority(R"({"webhooks":[]})"));
  EXPECT_FALSE(has_authority("{"));
}

TEST(Installation, ReadsTheServersVersionAlsoInVendorsForms) {
  EXPECT_EQ(parse_server_version(R"({"major":"1","minor":"36","gitVersion":"v1.36.3"})").minor, 36);
  EXPECT_EQ(parse_server_version(R"({"minor":"30+","gitVersion":"v1.30.4-gke.1"})").minor, 30);
  EXPECT_EQ(parse_server_version(R"({"minor":"30+","gitVersion":"v1.30.4-gke.1"})").text, "v1.30.4-gke.1");
  EXPECT_EQ(parse_server_version("{}").minor, -1);
  EXPECT_EQ(parse_server_version("{").minor, -1);
}

TEST(Lease, IsReadBackAsWritten) {
  const Lease lease{"s", "l", "7", "me", 15, "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:05.000000Z", 3};
  EXPECT_EQ(parse_lease(encode_lease(lease)).value(), lease);
  EXPECT_EQ(encode_lease(lease),
            R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l","namespace":"s",)"
            R"("resourceVersion":"7"},"spec":{"holderIdentity":"me","leaseDurationSeconds":15,"leaseTransitions":3,)"
            R"("acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:05.000000Z"}})");
  EXPECT_EQ(encode_lease({"s", "l", "", "", 15, "", "", 0}),
            R"({"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l","namespace":"s"},)"
            R"("spec":{"holderIdentity":"","leaseDurationSeconds":15,"leaseTransitions":0}})");
  EXPECT_FALSE(parse_lease("{}"));
  EXPECT_FALSE(parse_lease("{"));
}

TEST(Lease, NumbersAreLimitedToTheUsableRange) {
  const auto read = [](const std::string& seconds, const std::string& transitions) {
    const auto lease = parse_lease(R"({"metadata":{"name":"l"},"spec":{"leaseDurationSeconds":)" + seconds +
                                   R"(,"leaseTransitions":)" + transitions + "}}");
    return std::pair(lease->seconds, lease->transitions);
  };
  EXPECT_EQ(read("3600", "2147483646"), std::pair(std::int64_t{3600}, std::int64_t{INT32_MAX - 1}));
  EXPECT_EQ(read("3601", "2147483647"), std::pair(std::int64_t{3600}, std::int64_t{INT32_MAX - 1}));
  EXPECT_EQ(read("-1", "-1"), std::pair(std::int64_t{0}, std::int64_t{0}));
}

TEST(Notes, ReadsTheIdentityOfAnObject) {
  EXPECT_EQ(config_map_value(R"({"data":{"policy.conf":"x"}})", "policy.conf"), "x");
  EXPECT_EQ(config_map_value(R"({"data":{"policy.conf":"x"}})", "other"), "");
  EXPECT_EQ(config_map_value("{", "x"), "");
  const auto name = read_object_name(R"({"metadata":{"namespace":"s","name":"n","uid":"u","resourceVersion":"7"}})");
  EXPECT_EQ(name.namespace_name + "/" + name.name + "/" + name.uid + "/" + name.version, "s/n/u/7");
  EXPECT_EQ(read_object_name("{").name, "");
}

TEST(Notes, TheSchedulersLastMessageIsTheNewestOfItsEvents) {
  const auto event = [](const std::string& reason, const std::string& times, const std::string& message) {
    return R"({"reason":")" + reason + R"(",)" + times + R"(,"message":")" + message + R"("})";
  };
  const std::string first = event("FailedScheduling", R"("eventTime":"2026-01-01T00:00:01Z")", "first");
  const std::string second = event("FailedScheduling", R"("lastTimestamp":"2026-01-01T00:00:02Z")", "second");
  const std::string again = event("FailedScheduling",
                                  R"("eventTime":"2026-01-01T00:00:00Z",)"
                                  R"("series":{"lastObservedTime":"2026-01-01T00:00:03Z"})",
                                  "again");
  const std::string bound = event("Scheduled", R"("eventTime":"2026-01-01T00:00:04Z")", "bound");
  const std::string pulled = event("Pulled", R"("eventTime":"2026-01-01T00:00:09Z")", "pulled");
  EXPECT_EQ(scheduler_word({}), "");
  EXPECT_EQ(scheduler_word({first}), "first");
  EXPECT_EQ(scheduler_word({first, second}), "second");
  EXPECT_EQ(scheduler_word({second, first}), "second");
  EXPECT_EQ(scheduler_word({again, second, first}), "again");
  EXPECT_EQ(scheduler_word({again, bound, pulled, "{"}), "bound");
  EXPECT_EQ(scheduler_word({pulled}), "");
}

TEST(Installation, ReadsTheAgeOfALease) {
  Lease lease;
  EXPECT_EQ(seconds_since_renewal(lease, 0), std::nullopt);
  lease.renewed = "2026-11-21T10:00:00.123456Z";
  EXPECT_EQ(seconds_since_renewal(lease, 1795255207), 7);
  lease.renewed = "yesterday";
  EXPECT_EQ(seconds_since_renewal(lease, 0), std::nullopt);
}

}  // namespace
}  // namespace carve::codec
