#include "app/dashboard/boards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::dashboard {
namespace {

using ::testing::SizeIs;

CardView card_view(const std::string& uuid) {
  CardView card;
  card.card.id = CardId(uuid);
  card.card.model = "NVIDIA H200 (SIMULATED)";
  card.card.memory = Bytes::gib(141);
  card.set_aside = Bytes::gib(4);
  card.guaranteed = CoreShare(30);
  card.used = Bytes::gib(3);
  card.utilization_percent = 45;
  card.temperature_c = 61;
  card.power_mw = 250'900;
  return card;
}

SliceView slice_view(const std::string& id, const std::string& name, const std::string& owner) {
  SliceView slice;
  slice.id = id;
  slice.kind = owner.empty() ? "run" : "pod";
  slice.name = name;
  slice.owner = owner;
  slice.state = "running";
  SliceCardView held;
  held.card = "GPU-1";
  held.limit = Bytes::gib(4);
  held.used = Bytes::gib(2);
  held.compute = CoreShare(30);
  held.delivered_percent = 29.5;
  slice.cards.push_back(held);
  slice.processes.resize(2);
  return slice;
}

AgentView agent_view() {
  AgentView view;
  view.gpu_state = view.arbiter_state = "ok";
  view.driver_version = "999.0";
  view.cards.push_back(card_view("GPU-1"));
  return view;
}

codec::GpuObject gpu_object() {
  codec::GpuObject gpu;
  gpu.node = "n1";
  gpu.card.id = CardId("GPU-1");
  gpu.card.model = "NVIDIA H200";
  gpu.card.memory = Bytes::gib(141);
  gpu.card.compute = CoreShare::whole();
  gpu.card.health.ok = true;
  return gpu;
}

codec::GpuHolder holder_of(const std::string& uid, const std::string& part, Bytes memory) {
  codec::GpuHolder holder;
  holder.slice.owner = {OwnerKind::kPod, uid};
  holder.slice.part = part;
  holder.slice.card = CardId("GPU-1");
  holder.slice.memory = memory;
  holder.slice.compute = CoreShare(30);
  holder.namespace_name = "team";
  holder.name = "job";
  return holder;
}

TEST(MachineBoard, ShowsGrantedAndUsed) {
  auto view = agent_view();
  view.slices.push_back(slice_view("s-1", "python train.py", ""));
  const auto board = board_of_machine(view, "box");
  ASSERT_THAT(board.cards, SizeIs(1));
  const auto& card = board.cards[0];
  EXPECT_EQ(card.node, "box");
  EXPECT_EQ(card.granted, Bytes::gib(4));
  EXPECT_EQ(card.free, Bytes::gib(137));
  EXPECT_EQ(card.cores_free, 70U);
  EXPECT_EQ(card.used, Bytes::gib(3));
  EXPECT_EQ(card.delivered_percent, 29.5);
  EXPECT_EQ(card.power_w, 250U);
  EXPECT_EQ(card.slices, 1U);
  ASSERT_THAT(board.slices, SizeIs(1));
  EXPECT_EQ(board.slices[0].agent_id, "s-1");
  EXPECT_EQ(board.slices[0].namespace_name, "");
  EXPECT_EQ(board.slices[0].used, Bytes::gib(2));
  EXPECT_EQ(board.slices[0].processes, 2U);
  EXPECT_EQ(board.nodes[0].granted, Bytes::gib(4));
  EXPECT_EQ(board.notice, "");
}

TEST(MachineBoard, AnExclusiveOrUnhealthyCardHasNoFreeRoom) {
  auto view = agent_view();
  view.cards[0].exclusive = true;
  EXPECT_EQ(board_of_machine(view, "box").cards[0].free, Bytes());
  view.cards[0].exclusive = false;
  view.cards[0].card.health = {false, "XID 79"};
  const auto card = board_of_machine(view, "box").cards[0];
  EXPECT_EQ(card.free, Bytes());
  EXPECT_EQ(card.cores_free, 0U);
  EXPECT_EQ(card.reason, "XID 79");
}

TEST(MachineBoard, WhatTheDriverDoesNotReportIsUnknown) {
  auto view = agent_view();
  view.cards[0].used = Bytes::max();
  EXPECT_EQ(board_of_machine(view, "box").cards[0].used, std::nullopt);
}

TEST(MachineBoard, SaysWhatIsAway) {
  auto view = agent_view();
  view.gpu_state = "hangs";
  view.gpu_reason = "no answer for 10 s";
  EXPECT_EQ(board_of_machine(view, "box").notice, "The driver is hangs: no answer for 10 s. ");
}

TEST(ClusterBoard, TakesGrantsFromTheLedgerAndUseFromTheAgent) {
  auto gpu = gpu_object();
  gpu.holders.push_back(holder_of("uid-1", "main", Bytes::gib(4)));
  codec::ClusterView view;
  view.cards.push_back(gpu);
  AgentViews agents;
  NodeView node{"n1", agent_view(), {}};
  node.view->slices.push_back(slice_view("pod-1", "team/job/main", "uid-1"));
  agents["n1"] = node;
  const auto board = board_of_cluster(view, agents);
  EXPECT_EQ(board.cards[0].granted, Bytes::gib(4));
  EXPECT_EQ(board.cards[0].used, Bytes::gib(3));
  ASSERT_THAT(board.slices, SizeIs(1));
  EXPECT_EQ(board.slices[0].pod, "job");
  EXPECT_EQ(board.slices[0].container, "main");
  EXPECT_EQ(board.slices[0].agent_id, "pod-1");
  EXPECT_EQ(board.slices[0].state, "running");
  EXPECT_EQ(board.slices[0].used, Bytes::gib(2));
  EXPECT_TRUE(board.nodes[0].answers);
}

TEST(ClusterBoard, ANodeWithoutAnswerHasGrantsWithoutUse) {
  auto gpu = gpu_object();
  gpu.holders.push_back(holder_of("uid-1", "main", Bytes::gib(4)));
  codec::ClusterView view;
  view.cards.push_back(gpu);
  AgentViews agents;
  agents["n1"] = {"n1", std::nullopt, "pod x does not answer"};
  const auto board = board_of_cluster(view, agents);
  EXPECT_EQ(board.cards[0].granted, Bytes::gib(4));
  EXPECT_EQ(board.cards[0].used, std::nullopt);
  EXPECT_EQ(board.slices[0].state, "granted");
  EXPECT_EQ(board.slices[0].delivered_percent, std::nullopt);
  EXPECT_FALSE(board.nodes[0].answers);
  EXPECT_EQ(board.nodes[0].error, "pod x does not answer");
  EXPECT_EQ(board.nodes[0].used, std::nullopt);
}

// Two containers of one pod on one card: each gets its own figures.
TEST(ClusterBoard, ContainersOfOnePodAreNotMixedUp) {
  auto gpu = gpu_object();
  gpu.holders = {holder_of("uid-1", "a", Bytes::gib(4)), holder_of("uid-1", "b", Bytes::gib(8))};
  codec::ClusterView view;
  view.cards.push_back(gpu);
  NodeView node{"n1", agent_view(), {}};
  node.view->slices = {slice_view("pod-b", "team/job/b", "uid-1"), slice_view("pod-a", "team/job/a", "uid-1")};
  node.view->slices[0].cards[0].used = Bytes::gib(7);
  const auto board = board_of_cluster(view, {{"n1", node}});
  ASSERT_THAT(board.slices, SizeIs(2));
  EXPECT_EQ(board.slices[0].container, "a");
  EXPECT_EQ(board.slices[0].used, Bytes::gib(2));
  EXPECT_EQ(board.slices[1].container, "b");
  EXPECT_EQ(board.slices[1].used, Bytes::gib(7));
}

// The agent names a claim's request by its pod's container, so the part does not match; one slice is unambiguous.
TEST(ClusterBoard, AClaimIsMatchedByItsUid) {
  auto gpu = gpu_object();
  auto holder = holder_of("claim-uid", "gpu", Bytes::gib(4));
  holder.slice.owner.kind = OwnerKind::kClaim;
  holder.pods = {"team/job"};
  gpu.holders.push_back(holder);
  codec::ClusterView view;
  view.cards.push_back(gpu);
  NodeView node{"n1", agent_view(), {}};
  node.view->slices = {slice_view("claim-1", "team/claim/x", "claim-uid")};
  const auto board = board_of_cluster(view, {{"n1", node}});
  EXPECT_EQ(board.slices[0].pod, "job");
  EXPECT_EQ(board.slices[0].agent_id, "claim-1");
}

}  // namespace
}  // namespace carve::dashboard
