#include "app/control/schedule/node_nominator.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/control/preempt/preemptor.h"
#include "app/control/testing/leading.h"
#include "app/control/schedule/requeuer.h"
#include "codec/record.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

constexpr std::size_t kNodes = 110;

std::string node_name(std::size_t i) { return fmt::format("n{:03}", i); }

std::vector<codec::GpuObject> cards(std::size_t nodes) {
  std::vector<codec::GpuObject> made;
  for (std::size_t i = 0; i < nodes; ++i) made.push_back(gpu(node_name(i), fmt::format("GPU-{:03}", i)));
  return made;
}

/// A cluster in which all cards are full; kube-scheduler asks only about the first hundred nodes.
class NodeNominatorTest : public ::testing::Test, protected Leading {
 protected:
  explicit NodeNominatorTest(std::size_t nodes = kNodes) : Leading(cards(nodes)) {
    sync(model, api);
    for (std::size_t i = 0; i < nodes; ++i) holds(i, 16);
    requeuer.step();
  }
  std::string holder_of(std::size_t i) { return "holds-" + node_name(i); }
  void holds(std::size_t i, std::uint64_t gib) {
    const auto what = slice(holder_of(i), fmt::format("GPU-{:03}", i), gib);
    add({.uid = holder_of(i), .node = node_name(i), .record = record_text({what}), .phase = "Running", .priority = -1});
  }
  void free(std::size_t i) {
    model.pods().change({KubeChange::Kind::kDeleted, *api.object(testing::pod_path(holder_of(i)))});
    pass(ClusterModel::kLinger);
  }
  void pass(Clock::Duration time) {
    clock.advance(time);
    model.expire();
    lead();
  }
  /// kube-scheduler asked about the first `asked` nodes, and none had room.
  void refuse(const std::string& uid, std::size_t asked = NodeNominator::kLeastPart) {
    Strings names;
    for (std::size_t i = 0; i < asked; ++i) names.push_back(node_name(i));
    unschedulable.put(uid, std::move(names), clock.now(), asked);
  }
  void waits(const std::string& uid, const std::string& gib = "4", int priority = 0) {
    auto object = nlohmann::json::parse(pod_object({.uid = uid, .gib = gib, .priority = priority}));
    object["status"]["conditions"] = {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}}};
    api.put(testing::pod_path(uid), object.dump());
    deliver(uid);
    refuse(uid);
  }
  std::string nominated(const std::string& uid) { return pod(uid).nominated; }
  std::string step() {
    pass(NodeNominator::kGap);
    return nominator.step(false);
  }

  UnschedulablePods unschedulable;
  std::shared_ptr<const PlacementRules> rules = std::make_shared<PlacementRules>();
  Extender extender{{}, [this] { return rules; }, [this] { return model.snapshot(); }, {}, &clock};
  NodeNominator nominator{{model, leader, api, clock, log, unschedulable,
                           [this](const PodEntry& pod, const std::set<std::string>& excluded) {
                             return extender.choose_anywhere(pod, excluded);
                           }}};
  Requeuer requeuer{{model, leader, unschedulable, api, clock, log, &nominator}};
  Preemptor preemptor{{model, leader, api, clock, log, unschedulable, binpack, {}, {}, &nominator}};
};

TEST_F(NodeNominatorTest, NominatesANodeThatWasNotLookedAtAndKeepsItsRoom) {
  free(105);
  waits("a", "10");
  EXPECT_EQ(step(), "n105") << "kube-scheduler must retry";
  EXPECT_EQ(nominated("a"), "n105");
  EXPECT_EQ(model.stats().nominated, 1U);
  waits("b", "10");
  EXPECT_EQ(step(), "");
  EXPECT_EQ(nominated("b"), "") << "the room is a's";
  const auto bound = model.reserve("n105", *model.pod("a"), kPolicies[0], leader.epoch());
  ASSERT_TRUE(bound) << bound.error().what;
  add({.uid = "a", .node = "n105", .record = record_text(bound->slices), .gib = "10"});
  pass(NodeNominator::kTrial);
  EXPECT_EQ(nominator.step(false), "");
  EXPECT_EQ(nominator.stats().nominated, 1U);
  EXPECT_EQ(nominator.stats().unsuccessful, 0U);
  EXPECT_EQ(model.stats().nominated, 0U);
}

TEST_F(NodeNominatorTest, NominatesNothingIfKubeSchedulerLookedAtAllNodes) {
  free(105);
  waits("a");
  refuse("a", kNodes);
  EXPECT_EQ(step(), "");
  refuse("a", 30);  // fewer than a hundred nodes are not a part
  EXPECT_EQ(step(), "");
  EXPECT_EQ(nominated("a"), "");
}

TEST_F(NodeNominatorTest, NominatesNothingWithoutLeading) {
  free(105);
  waits("a");
  clock.advance(1h);
  EXPECT_EQ(nominator.step(true), "");
  EXPECT_EQ(nominated("a"), "");
  EXPECT_EQ(model.stats().nominated, 0U);
}

TEST_F(NodeNominatorTest, NominatesFreedRoomBeforeWaitingPodsAreRequeued) {
  waits("a", "16");
  waits("b", "16");
  requeuer.step();
  EXPECT_EQ(nominated("a"), "");
  free(3);
  requeuer.step();
  EXPECT_EQ(nominated("a"), "n003");
  EXPECT_EQ(nominated("b"), "");
  Strings patched;
  for (const auto& write : api.writes()) {
    if (write.verb == "patch") patched.push_back(write.path);
  }
  EXPECT_THAT(patched, ::testing::ElementsAre(testing::pod_path("a") + "/status", "/api/v1/nodes/n003"));
}

TEST_F(NodeNominatorTest, NominatesForTheHigherPriorityFirst) {
  waits("a", "16");
  waits("b", "16", 5);
  free(3);
  requeuer.step();
  EXPECT_EQ(nominated("a"), "");
  EXPECT_EQ(nominated("b"), "n003");
}

// The node lacks CPU, or the pod is not allowed there: control does not know.
TEST_F(NodeNominatorTest, NominatesAnotherNodeAfterAnUnsuccessfulOne) {
  for (const std::size_t i : {101, 102, 103, 104, 105, 106}) free(i);
  waits("a", "16");
  std::set<std::string> named;
  for (std::size_t i = 0; i < NodeNominator::kTries; ++i) {
    EXPECT_NE(step(), "") << i;
    named.insert(nominated("a"));
    pass(NodeNominator::kSeen / 2);
    refuse("a");  // that attempt was already in progress
    EXPECT_EQ(step(), "");
    EXPECT_EQ(nominator.stats().unsuccessful, i);
    pass(NodeNominator::kSeen / 2);
    refuse("a");
  }
  EXPECT_EQ(step(), "");
  EXPECT_EQ(named.size(), NodeNominator::kTries) << "a different node each time";
  EXPECT_EQ(nominator.stats().unsuccessful, NodeNominator::kTries);
  EXPECT_EQ(nominated("a"), "");
  EXPECT_EQ(model.stats().nominated, 0U);
  pass(NodeNominator::kPause);
  EXPECT_NE(step(), "");
}

TEST_F(NodeNominatorTest, TouchesAgainAfterATryThatCrossedTheNomination) {
  free(105);
  waits("a");
  ASSERT_EQ(step(), "n105");
  EXPECT_EQ(step(), "");
  pass(NodeNominator::kTouchAgain);
  EXPECT_EQ(nominator.step(false), "n105");
  EXPECT_EQ(step(), "");
  EXPECT_EQ(nominator.stats().nominated, 1U);
  pass(NodeNominator::kTrial);
  (void)nominator.step(false);
  EXPECT_EQ(nominator.stats().unsuccessful, 1U) << "control does not wait for a scheduler that does not retry";
}

TEST_F(NodeNominatorTest, KeepsNoRoomIfTheNominationCannotBeWritten) {
  free(105);
  waits("a");
  api.fail_next({.verb = "patch", .path = "status", .code = Code::kUnavailable});
  EXPECT_EQ(step(), "");
  EXPECT_EQ(model.stats().nominated, 0U);
  EXPECT_EQ(step(), "n105");
}

TEST_F(NodeNominatorTest, LimitsOpenNominations) {
  for (std::size_t i = 0; i < 30; ++i) free(i);
  for (std::size_t i = 0; i < 30; ++i) waits(fmt::format("p{:02}", i), "16");
  (void)step();
  EXPECT_EQ(nominator.stats().nominated, NodeNominator::kAtOnce);
  EXPECT_EQ(model.stats().nominated, NodeNominator::kAtOnce);
}

// On each node of the part a pod of lower priority holds the card.
TEST_F(NodeNominatorTest, EvictsNoPodWhileASkippedNodeHasRoom) {
  const auto evictions = [this] {
    std::size_t count = 0;
    for (const auto& write : api.writes()) count += write.path.ends_with("/eviction") ? 1U : 0U;
    return count;
  };
  free(105);
  waits("high", "16", 1000);
  const auto look = [&] {
    pass(Preemptor::kRetry);
    refuse("high");
    pass(Preemptor::kSettle);
    (void)nominator.step(false);
    deliver("high");
    preemptor.step();
  };
  pass(Preemptor::kSettle);
  preemptor.step();
  EXPECT_EQ(evictions(), 0U) << "the other nodes are not tried yet";
  (void)step();
  deliver("high");
  ASSERT_EQ(nominated("high"), "n105");
  preemptor.step();
  EXPECT_EQ(evictions(), 0U) << "the pod may be bound there";
  EXPECT_EQ(model.stats().nominated, 1U);
  look();
  look();
  look();
  EXPECT_EQ(nominator.stats().unsuccessful, 1U);
  EXPECT_EQ(evictions(), 1U) << "the pod lacked something else there";
}

// Found in a cluster test: a pod got a second nomination while victims ended on the first node, and got neither.
TEST_F(NodeNominatorTest, NominatesNothingWhileVictimsEndForThePod) {
  free(105);
  waits("high", "16", 1000);
  (void)step();
  pass(NodeNominator::kSeen);
  refuse("high");
  (void)step();
  deliver("high");
  ASSERT_EQ(nominator.stats().unsuccessful, 1U);
  for (int i = 0; i < 3 && model.stats().nominated == 0; ++i) {
    pass(Preemptor::kRetry);
    refuse("high");
    pass(Preemptor::kSettle);
    (void)nominator.step(false);
    preemptor.step();
  }
  const auto node = nominated("high");
  ASSERT_THAT(node, ::testing::AllOf(::testing::Ne(""), ::testing::Ne("n105")));
  free(109);
  EXPECT_EQ(nominator.step(true), "") << "the watch has not shown the nomination yet";
  deliver("high");
  EXPECT_EQ(nominator.step(true), "");
  EXPECT_EQ(nominated("high"), node);
}

class FewNodes : public NodeNominatorTest {
 protected:
  FewNodes() : NodeNominatorTest(NodeNominator::kLeastPart) {}
};

TEST_F(FewNodes, GetNoNominations) {
  free(5);
  waits("a");
  unschedulable.forget("a");
  EXPECT_EQ(step(), "");
  EXPECT_EQ(nominated("a"), "");
  EXPECT_TRUE(nominator.exhausted(*model.pod("a"), clock.now()));
}

// A follower derives the reservation from the nomination, and drops it when the nomination is cleared.
TEST_F(NodeNominatorTest, FollowerKeepsTheRoomWhileTheNominationStands) {
  Preemptor follower{{model, leader, api, clock, log, unschedulable, binpack, {}, {}, nullptr}};
  free(105);
  waits("a", "10");
  auto object = nlohmann::json::parse(*api.object(testing::pod_path("a")));
  object["status"]["nominatedNodeName"] = "n105";
  api.put(testing::pod_path("a"), object.dump());
  deliver("a");
  clock.advance(1h);
  follower.step();
  EXPECT_EQ(model.stats().nominated, 1U);
  object["status"].erase("nominatedNodeName");
  api.put(testing::pod_path("a"), object.dump());
  deliver("a");
  follower.step();
  EXPECT_EQ(model.stats().nominated, 0U);
}

}  // namespace
}  // namespace carve::control
