#include "core/cluster/room.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

const Owner kPod{OwnerKind::kPod, "pod"};

Holder holder(const std::string& uid, std::int32_t priority, std::int64_t started = 0) {
  return {{OwnerKind::kPod, uid}, priority, started, {}};
}

class RoomTest : public testing::Test {
 protected:
  /// A node with one card of 16 GiB, on which each of these owners holds the given memory.
  void add_node(const std::string& name, const std::vector<std::pair<Holder, std::uint64_t>>& there) {
    auto state = std::make_shared<NodeState>();
    Card card;
    card.id = CardId("GPU-" + name);
    card.model = "NVIDIA T4";
    card.memory = Bytes::gib(16);
    ASSERT_TRUE(state->ledger.put_card(card));
    for (const auto& [who, gib] : there) {
      ASSERT_TRUE(state->ledger.add({Slice{who.owner, "c", card.id, Bytes::gib(gib), CoreShare(1)}}));
      candidates.holders[name].push_back(who);
    }
    cluster.put(name, state);
    names.push_back(name);
  }
  FoundRoom find(std::uint64_t gib, std::int32_t priority = 10) {
    Request request;
    request.memory = MemoryAsk::of(Bytes::gib(gib));
    request.compute = CoreShare(1);
    return find_room(cluster, kPod, {{"c", Phase::kRun, request, ""}}, priority, names,
                     [](const std::string&) -> const PolicyRow& { return kPolicies[0]; }, candidates);
  }
  ClusterState cluster;
  std::vector<std::string> names;
  PreemptionCandidates candidates;
};

TEST_F(RoomTest, NoPodIsEvictedWhereThereIsRoomNowOrSoon) {
  add_node("a", {{holder("low", 0), 16}});
  add_node("b", {{holder("leaves", 20), 16}});
  add_node("c", {{holder("x", 0), 10}});
  EXPECT_EQ(find(6).room, Room::kThere);
  candidates.going = {{OwnerKind::kPod, "leaves"}};
  EXPECT_EQ(find(8).room, Room::kComing);
  EXPECT_EQ(find(8).node, "b");
  candidates.going.clear();
  const auto found = find(8);
  EXPECT_EQ(found.room, Room::kForOthers);
  EXPECT_EQ(found.plan.victims.front().owner.uid, "low") << "between equal nodes, the one with the lower name";
  EXPECT_EQ(find(8, 0).room, Room::kNone) << "no pod has a lower priority";
  EXPECT_EQ(find(17).room, Room::kNone) << "no card is large enough, regardless of the victims";
}

TEST_F(RoomTest, NoPodIsEvictedForAClosedNodeOrOnIt) {
  const auto close = [&](const std::string& name) {
    auto state = std::make_shared<NodeState>(*cluster.at(name));
    state->closed = "its agent is being replaced";
    cluster.put(name, state);
  };
  add_node("a", {{holder("low", 0), 16}});
  add_node("b", {{holder("x", 0), 8}});
  close("b");
  EXPECT_EQ(find(8).room, Room::kComing);
  EXPECT_EQ(find(8).node, "b");
  const auto found = find(12);
  EXPECT_EQ(found.room, Room::kForOthers) << "there is no room on the closed node even after it opens";
  EXPECT_EQ(found.node, "a") << "no pod is evicted on a node that the new pod cannot use";
  close("a");
  EXPECT_EQ(find(12).room, Room::kNone);
  add_node("c", {});
  EXPECT_EQ(find(8).room, Room::kThere);
}

TEST_F(RoomTest, APodDoesNotWaitForANodeThatIsClosedToItsDialect) {
  add_node("a", {{holder("low", 0), 16}});
  add_node("b", {{holder("lower", -1), 8}});
  auto state = std::make_shared<NodeState>(*cluster.at("b"));
  state->closed_to = {{"native", "another device plugin serves its name"}};
  cluster.put("b", state);
  const auto found = find(8);
  EXPECT_EQ(found.room, Room::kForOthers);
  EXPECT_EQ(found.node, "a");
  state = std::make_shared<NodeState>(*state);
  state->closed_to = {{"gpushare", "another device plugin serves its name"}};
  cluster.put("b", state);
  EXPECT_EQ(find(8).room, Room::kThere) << "the node is closed to another dialect";
}

TEST_F(RoomTest, NodesAreComparedInTheOrderOfKubeScheduler) {
  add_node("dear", {{holder("d", 5), 16}});
  add_node("two", {{holder("t1", 0), 8}, {holder("t2", 0), 8}});
  add_node("old", {{holder("o", 0, 1), 16}});
  add_node("young", {{holder("y", 0, 2), 16}});
  EXPECT_EQ(find(16).node, "young") << "its victim started last, so the least work is lost";
  names = {"dear", "two", "old"};
  EXPECT_EQ(find(16).node, "old") << "one victim instead of two";
  names = {"dear", "two"};
  EXPECT_EQ(find(16).node, "two") << "the highest priority of a victim counts more than the number of victims";
  candidates.allowed = {1};
  for (auto& one : candidates.holders["two"]) one.budgets = {0};
  EXPECT_EQ(find(16).node, "dear") << "budgets count most";
  EXPECT_EQ(find(16).plan.cost.violations, 0U);
}

TEST_F(RoomTest, CapacityThatIsReservedForAnotherPodCountsAsTaken) {
  add_node("a", {{holder("low", 0), 8}});
  auto state = std::make_shared<NodeState>(*cluster.at("a"));
  Slice kept{{OwnerKind::kPod, "first"}, "c", CardId("GPU-a"), Bytes::gib(8), CoreShare(1)};
  state->reservations = {{kept.owner, 10, {kept}, {}}};
  cluster.put("a", state);
  EXPECT_EQ(find(8).room, Room::kForOthers);
  EXPECT_EQ(find(8, 11).room, Room::kThere);
  EXPECT_EQ(find(16).room, Room::kNone);
}

}  // namespace
}  // namespace carve
