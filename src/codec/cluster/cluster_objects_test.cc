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

TEST(ClusterPod, IsReadAsFarAsControlNeedsIt) {
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

TEST(ClusterPod, EndingsAndGates) {
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

TEST(ClusterPod, WritesNameThisVeryPod) {
  const auto pod = parse_cluster_pod(kPod);
  ASSERT_TRUE(pod);
  EXPECT_EQ(binding_body(*pod, "n9", {{"k", "v\"w"}}),
            R"({"apiVersion":"v1","kind":"Binding","metadata":{"name":"p","namespace":"s","uid":"u-1",)"
            R"("annotations":{"k":"v\"w"}},"target":{"apiVersion":"v1","kind":"Node","name":"n9"}})");
  EXPECT_EQ(annotations_patch(*pod, {{"k", "v"}}),
            R"({"metadata":{"uid":"u-1","resourceVersion":"7","annotations":{"k":"v"}}})");
}

TEST(ClusterPod, WhatDecidesAboutItsGoing) {
  const auto pod = parse_cluster_pod(
      R"({"metadata":{"name":"p","uid":"u","annotations":{"kubernetes.io/config.mirror":"x"}},)"
      R"("spec":{"preemptionPolicy":"Never","terminationGracePeriodSeconds":5},"status":{"phase":"Pending",)"
      R"("startTime":"2026-11-21T20:01:02Z","conditions":[{"type":"PodScheduled","status":"False",)"
      R"("reason":"Unschedulable"}]}})");
  ASSERT_TRUE(pod);
  EXPECT_TRUE(pod->yields);
  EXPECT_TRUE(pod->refused);
  EXPECT_TRUE(pod->mirror);
  EXPECT_EQ(pod->grace, 5);
  EXPECT_EQ(pod->started_at, 20261121200102);
  const auto other = parse_cluster_pod(kPod);
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->yields || other->refused || other->mirror);
  EXPECT_EQ(other->grace, 30);
}

TEST(ClusterNode, LabelsAndSlots) {
  const auto node = parse_cluster_node(
      R"({"metadata":{"name":"n","labels":{"pool":"a"}},"status":{"allocatable":{"elasticgpu.io/slot":"128"}}})");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->labels.at("pool"), "a");
  EXPECT_EQ(node->slots, 128U);
  EXPECT_FALSE(parse_cluster_node("{}"));
}

}  // namespace
}  // namespace carve::codec
