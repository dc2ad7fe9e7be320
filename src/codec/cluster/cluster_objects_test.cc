#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/cluster/cluster_node.h"
#include "codec/cluster/cluster_pod.h"

namespace carve::codec {
namespace {

constexpr char kPod[] =
    R"({"metadata":{"name":"p","namespace":"s","uid":"u-1","resourceVersion":"7","annotations":)"
    R"({"carve.elasticgpu.io/record":"{}","a":"b"}},"spec":{"nodeName":"n1","priority":1000,)"
    R"("schedulerName":"carve-scheduler","containers":[{"name":"c"}]},"status":{"phase":"Running",)"
    R"("nominatedNodeName":"n2","containerStatuses":[{"name":"c","state":{"running":{}}}]}})";

/// The same Pod in a text that is parsed completely: the name of its first member is not ASCII.
std::string spelled(const std::string& pod) { return "{\"\xc3\xa9\":0," + pod.substr(1); }

TEST(ClusterPod, SkippingMembersDoesNotChangeTheResult) {
  const std::string text =
      R"({"kind":"Pod","metadata":{"name":"p","namespace":"s","uid":"u","resourceVersion":"7",)"
      R"("labels":{"l":"1"},"annotations":{"carve.elasticgpu.io/record":"r","a\"b":"c\u003cd"},)"
      R"("deletionTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"fieldsV1":{"f:spec":{"f:nodeName":{}}}}]},)"
      R"("spec":{"volumes":[{"name":"v"}],"nodeName":"n","nodeSelector":{"a":"b"},)"
      R"("schedulerName":"carve","priority":5,"terminationGracePeriodSeconds":7,"preemptionPolicy":"Never",)"
      R"("schedulingGates":[{"name":"g"}],"initContainers":[{"name":"i","restartPolicy":"Always"}],)"
      R"("containers":[{"name":"c","env":[{"name":"x"}],"resources":{"limits":{"elasticgpu.io/gpu":1},)"
      R"("requests":{"cpu":"1"}}}]},)"
      R"("status":{"hostIP":"1.1.1.1","nominatedNodeName":"m","startTime":"2026-01-01T23:59:59Z","phase":"Failed",)"
      R"("conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}],"initContainerStatuses":[],)"
      R"("containerStatuses":[{"restartCount":1}]},"other":{"spec":{}}})";
  for (const auto& one : {text, spelled(text)}) {
    const auto pod = parse_cluster_pod(one);
    ASSERT_TRUE(pod) << pod.error().what;
    EXPECT_EQ(pod->ask.namespace_name + "/" + pod->ask.name + "/" + pod->ask.uid, "s/p/u");
    EXPECT_EQ(pod->version, "7");
    EXPECT_EQ(pod->ask.labels.at("l"), "1");
    EXPECT_EQ(pod->ask.annotations.at("a\"b"), "c<d");
    EXPECT_EQ(pod->record, "r");
    EXPECT_EQ(pod->node, "n");
    EXPECT_EQ(pod->ask.node_selector.at("a"), "b");
    EXPECT_EQ(pod->scheduler, "carve");
    EXPECT_EQ(pod->nominated, "m");
    EXPECT_EQ(pod->priority, 5);
    EXPECT_EQ(pod->grace, 7);
    EXPECT_EQ(pod->started_at, 20260101235959);
    EXPECT_TRUE(pod->never_preempts && pod->gated && pod->deleting && pod->ended && pod->started && pod->refused);
    ASSERT_EQ(pod->ask.containers.size(), 2U);
    EXPECT_EQ(pod->ask.containers[0].kind, ContainerKind::kSidecar);
    EXPECT_EQ(pod->ask.containers[1].limits.at("elasticgpu.io/gpu"), "1");
    EXPECT_EQ(pod->ask.containers[1].requests.at("cpu"), "1");
  }
  for (const std::string odd : {"", "[]", "{}", R"({"metadata":{}})", R"({"metadata":{"name":"p"},"spec":3})"})
    EXPECT_FALSE(parse_cluster_pod(odd)) << odd;
}

TEST(ClusterPod, ReadsThePartsThatControlNeeds) {
  const auto pod = parse_cluster_pod(kPod);
  ASSERT_TRUE(pod) << pod.error().what;
  EXPECT_EQ(pod->ask.uid, "u-1");
  EXPECT_EQ(pod->node, "n1");
  EXPECT_EQ(pod->record, "{}");
  EXPECT_EQ(pod->nominated, "n2");
  EXPECT_EQ(pod->priority, 1000);
  EXPECT_TRUE(pod->started);
  EXPECT_FALSE(pod->ended);
  EXPECT_FALSE(pod->deleting);
  EXPECT_FALSE(pod->gated);
}

TEST(ClusterPod, ReadsEndingsAndSchedulingGates) {
  const auto pod = parse_cluster_pod(
      R"({"metadata":{"name":"p","uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"},)"
      R"("spec":{"schedulingGates":[{"name":"x"}]},"status":{"phase":"Failed"}})");
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->ended);
  EXPECT_TRUE(pod->deleting);
  EXPECT_TRUE(pod->gated);
  EXPECT_FALSE(parse_cluster_pod(R"({"metadata":{"name":"p"}})"));
  EXPECT_FALSE(parse_cluster_pod("7"));
}

TEST(ClusterPod, BodiesNameExactlyThisPod) {
  const auto pod = parse_cluster_pod(kPod);
  ASSERT_TRUE(pod);
  EXPECT_EQ(binding_body(*pod, "n9", {{"k", "v\"w"}}),
            R"({"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","namespace":"s","uid":"u-1",)"
            R"("annotations":{"k":"v\"w"}},"target":{"apiVersion":"v1","kind":"Node","name":"n9"}})");
  EXPECT_EQ(annotations_patch(*pod, {{"k", "v"}}),
            R"({"metadata":{"uid":"u-1","resourceVersion":"7","annotations":{"k":"v"}}})");
}

TEST(ClusterPod, ReadsTheFieldsThatDecideAboutItsEviction) {
  const auto pod = parse_cluster_pod(
      R"({"metadata":{"name":"p","uid":"u","annotations":{"kubernetes.io/config.mirror":"x"}},)"
      R"("spec":{"preemptionPolicy":"Never","terminationGracePeriodSeconds":5},"status":{"phase":"Pending",)"
      R"("startTime":"2026-11-21T20:01:02Z","conditions":[{"type":"PodScheduled","status":"False",)"
      R"("reason":"Unschedulable"}]}})");
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->never_preempts);
  EXPECT_TRUE(pod->refused);
  EXPECT_TRUE(pod->mirror);
  EXPECT_EQ(pod->grace, 5);
  EXPECT_EQ(pod->started_at, 20261121200102);
  const auto other = parse_cluster_pod(kPod);
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->never_preempts || other->refused || other->mirror);
  EXPECT_EQ(other->grace, 30);
}

TEST(ClusterPod, EveryPhaseHasItsMeaning) {
  for (const auto& [phase, ended] : {std::pair<std::string, bool>{"Pending", false},
                                     {"Running", false},
                                     {"Unknown", false},
                                     {"Succeeded", true},
                                     {"Failed", true},
                                     {"", false}}) {
    const auto pod = parse_cluster_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{"phase":")" + phase + R"("}})");
    ASSERT_TRUE(pod);
    EXPECT_EQ(pod->ended, ended) << phase;
  }
}

TEST(ClusterPod, OnlyTheSchedulersOwnConditionIsARefusal) {
  const auto refused = [](const std::string& type, const std::string& status, const std::string& reason) {
    return parse_cluster_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{"conditions":[{"type":"Ready"},)"
                             R"({"type":")" +
                             type + R"(","status":")" + status + R"(","reason":")" + reason + R"("}]}})")
        ->refused;
  };
  EXPECT_TRUE(refused("PodScheduled", "False", "Unschedulable"));
  EXPECT_FALSE(refused("PodScheduled", "True", "Unschedulable"));
  EXPECT_FALSE(refused("PodScheduled", "False", "SchedulingGated"));
  EXPECT_FALSE(refused("Ready", "False", "Unschedulable"));
}

TEST(ClusterPod, AContainerThatEverRanHasStarted) {
  const auto started = [](const std::string& list, const std::string& status) {
    return parse_cluster_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{")" + list + R"(":[{"name":"a"},)" +
                             status + "]}}")
        ->started;
  };
  for (const std::string list : {"initContainerStatuses", "containerStatuses"}) {
    EXPECT_TRUE(started(list, R"({"state":{"running":{}}})"));
    EXPECT_TRUE(started(list, R"({"state":{"terminated":{}}})"));
    EXPECT_TRUE(started(list, R"({"restartCount":1,"state":{"waiting":{}}})"));
    EXPECT_FALSE(started(list, R"({"restartCount":0,"state":{"waiting":{}}})"));
  }
}

TEST(ClusterNode, ReadsLabelsAndSlots) {
  const auto node = parse_cluster_node(
      R"({"metadata":{"name":"n","labels":{"pool":"a"}},"status":{"allocatable":{"elasticgpu.io/slot":"128"}}})");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->labels.at("pool"), "a");
  EXPECT_EQ(node->slots, 128U);
  EXPECT_FALSE(parse_cluster_node("{}"));
}

TEST(ClusterNode, KnowsTheResourcesOfDialectsThatAreExhausted) {
  const auto node = parse_cluster_node(R"({"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"0",)"
                                       R"("aliyun.com/gpu-mem":"0","nvidia.com/gpu":"8"}}})");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->exhausted, std::vector<std::string>{"aliyun.com/gpu-mem"});
}

TEST(ClusterNode, ReadsTheModesOfItsCards) {
  const auto node = parse_cluster_node(
      R"({"metadata":{"name":"n","labels":{"elasticgpu.io/card-mode":"shared"},)"
      R"("annotations":{"elasticgpu.io/card-modes":"1=exclusive","elasticgpu.io/card-mode-drain":"true"}}})");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->modes.of(CardId("GPU-a"), 0), CardMode::kShared);
  EXPECT_EQ(node->modes.of(CardId("GPU-b"), 1), CardMode::kExclusive);
  EXPECT_TRUE(node->modes.drains);
}

TEST(ClusterNode, ItsAddressIsTheInternalIp) {
  const std::string outside = R"({"metadata":{"name":"n"},"status":{"addresses":[{"type":"Hostname","address":"n"})";
  const std::string two = R"(,{"type":"InternalIP","address":"10.0.0.1"},{"type":"InternalIP","address":"fd00::1"}]}})";
  EXPECT_EQ(parse_cluster_node(outside + two)->address, "10.0.0.1");
  EXPECT_EQ(parse_cluster_node(outside + "]}}")->address, "");
}

TEST(ClusterNode, ReadsTheNamesThatAnotherPluginServes) {
  const auto others = [](const std::string& status) {
    return parse_cluster_node(R"({"metadata":{"name":"n"},"status":{"conditions":[{"type":"ConflictingPlugin",)"
                              R"("message":"another device plugin serves nvidia.com/gpu on this node (8 devices); p",)"
                              R"("status":")" + status + R"("}]}})")->of_others;
  };
  EXPECT_EQ(others("True"), std::vector<std::string>{"nvidia.com/gpu"});
  EXPECT_TRUE(others("False").empty());
}

TEST(ClusterNode, ReadsWhetherItsAgentIsLeaving) {
  const auto leaving = [](const std::string& status) {
    return parse_cluster_node(R"({"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"True"},)"
                              R"({"type":"GPUAgentLeaving","status":")" + status + R"("}]}})")->leaving;
  };
  EXPECT_TRUE(leaving("True"));
  EXPECT_FALSE(leaving("False"));
  EXPECT_FALSE(leaving("Unknown"));
  EXPECT_FALSE(parse_cluster_node(R"({"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready"}]}})")->leaving);
}

TEST(ClusterPod, NumbersAreLimitedToTheUsableRange) {
  using Read = std::pair<std::int64_t, std::int64_t>;
  const auto read = [](const std::string& priority, const std::string& grace) {
    const auto pod = parse_cluster_pod(R"({"metadata":{"name":"p","uid":"u"},"spec":{"priority":)" + priority +
                                       R"(,"terminationGracePeriodSeconds":)" + grace + "}}");
    EXPECT_TRUE(pod) << priority << " " << grace;
    return pod ? Read(pod->priority, pod->grace) : Read();
  };
  EXPECT_EQ(read("2147483647", "86400"), (Read{INT32_MAX, 86'400}));
  EXPECT_EQ(read("2147483648", "86401"), (Read{INT32_MAX, 86'400}));
  EXPECT_EQ(read("-2147483648", "0"), (Read{INT32_MIN, 0}));
  EXPECT_EQ(read("-2147483649", "-1"), (Read{INT32_MIN, 0}));
  EXPECT_EQ(read("\"7\"", "\"7\""), (Read{0, 0})) << "not numbers";
}

TEST(ClusterPod, TheStartTimeIsReadToTheSecond) {
  const auto started = [](const std::string& time) {
    return parse_cluster_pod(R"({"metadata":{"name":"p","uid":"u"},"status":{"startTime":")" + time + R"("}})")
        ->started_at;
  };
  EXPECT_EQ(started("2026-01-09T09:08:07Z"), 20260109090807);
  EXPECT_EQ(started("2026-01-09T09:08:07.654321Z"), 20260109090807) << "fractions are dropped";
  EXPECT_EQ(started(""), 0);
}

TEST(ClusterPod, ItsNameAndItsUidAreRequired) {
  EXPECT_TRUE(parse_cluster_pod(R"({"metadata":{"name":"p","uid":"u"}})"));
  EXPECT_FALSE(parse_cluster_pod(R"({"metadata":{"name":"p","uid":""}})"));
  EXPECT_FALSE(parse_cluster_pod(R"({"metadata":{"name":"","uid":"u"}})"));
}

}  // namespace
}  // namespace carve::codec
