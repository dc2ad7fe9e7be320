#include "app/control/preempt/preemptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "app/control/testing/leading.h"
#include "codec/record.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // NOLINT: the objects of the tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Strings = std::vector<std::string>;

class PreemptorTest : public ::testing::Test, protected Leading {
 protected:
  PreemptorTest() : Leading({gpu("n1", "GPU-1"), gpu("n2", "GPU-2")}) { sync(model, api); }
  /// A pod that holds a slice of its node's card.
  void holds(const std::string& uid, const std::string& node, std::uint64_t gib, int priority = 0,
             const std::string& more = "") {
    const std::string card = node == "n1" ? "GPU-1" : "GPU-2";
    add({.uid = uid, .node = node, .record = record_text({slice(uid, card, gib)}), .phase = "Running",
         .gib = std::to_string(gib), .more = more, .priority = priority});
  }
  /// kube-scheduler asked about the pod a moment ago: on these nodes it lacks only cards.
  void reject(const std::string& uid, const Strings& nodes) {
    unschedulable.put(uid, nodes, clock.now() - Preemptor::kSettle);
  }
  /// A waiting pod that kube-scheduler has just asked about: on these nodes it lacks only cards.
  void waits(const std::string& uid, const std::string& gib, int priority, const Strings& nodes = {"n1", "n2"}) {
    add({.uid = uid, .gib = gib, .priority = priority});
    reject(uid, nodes);
  }
  void budget(const std::string& name, const std::string& app, int allowed) {
    api.put("/apis/policy/v1/namespaces/s/poddisruptionbudgets/" + name,
            R"({"metadata":{"name":")" + name + R"(","namespace":"s"},"spec":{"selector":{"matchLabels":{"app":")" +
                app + R"("}}},"status":{"disruptionsAllowed":)" + std::to_string(allowed) + "}}");
  }
  /// The evicted pods in the order of the requests, without dry runs.
  Strings evicted() {
    Strings names;
    for (const auto& write : api.writes()) {
      if (write.path.ends_with("/eviction") && write.done && write.body.find("dryRun") == std::string::npos)
        names.push_back(write.path.substr(pod_path("").size(), write.path.size() - pod_path("").size() - 9));
    }
    return names;
  }
  /// The watch shows that an evicted pod is deleted; its card's object no longer names it.
  void deleted(const std::string& uid, const std::string& node, std::uint64_t gib) {
    const std::string card = node == "n1" ? "GPU-1" : "GPU-2";
    model.pods().change({KubeChange::Kind::kDeleted,
                         pod_object({.uid = uid, .node = node, .record = record_text({slice(uid, card, gib)})})});
  }
  std::string nominated(const std::string& uid) { return pod(uid).nominated; }
  /// kube-scheduler writes the nomination to the pod's status, and the watch shows it; empty node: it clears it.
  void scheduler_nominates(const std::string& uid, const std::string& node) {
    auto object = nlohmann::json::parse(*api.object(pod_path(uid)));
    object["status"].erase("nominatedNodeName");
    if (!node.empty()) object["status"]["nominatedNodeName"] = node;
    api.put(pod_path(uid), object.dump());
    deliver(uid);
  }
  std::string why_not(const std::string& uid, const std::string& gib, int priority, const std::string& node) {
    const auto text = pod_object({.uid = uid, .gib = gib, .priority = priority});
    const auto asks = pod_entry_of(*codec::parse_cluster_pod(text), {});
    const auto found = fit(*model.snapshot(), asks->owner(), asks->parts, {node}, kPolicies[0], priority);
    return found.refused.empty() ? "" : found.refused.front().why;
  }
  UnschedulablePods unschedulable;
  std::vector<codec::UnschedulablePodsNote> forwarded;
  Preemptor preemptor{{model, leader, api, clock, log, unschedulable, binpack,
                       [this](codec::EventNote one) { record_event(std::move(one)); },
                       [this](const codec::UnschedulablePodsNote& one) { forwarded.push_back(one); }}};
};

TEST_F(PreemptorTest, EvictsOnlyNeededVictimsAndNominatesTheNode) {
  holds("a", "n1", 8);
  holds("b", "n1", 8);
  holds("c", "n2", 6, 3);
  holds("d", "n2", 10, 3);
  waits("high", "8", 1000);
  preemptor.step();
  EXPECT_THAT(evicted(), SizeIs(1));
  EXPECT_EQ(nominated("high"), "n1");
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_THAT(events[0].message,
              HasSubstr("evicted for pod s/high (priority 1000 > 0); held on node n1: container c: 8 GiB"));
  EXPECT_EQ(events[1].name, "high");
  EXPECT_THAT(events[1].message, HasSubstr("waits for s/" + evicted()[0] + " on node n1 to end (evicted"));
  deliver("high");
  for (int i = 0; i < 20; ++i) {
    clock.advance(1s);
    leader.step();
    reject("high", {"n1", "n2"});
    preemptor.step();
  }
  EXPECT_THAT(evicted(), SizeIs(1)) << "no other pod is evicted while the first victims end";
}

TEST_F(PreemptorTest, KeepsTheRoomForThePodUntilItIsBound) {
  holds("a", "n1", 16);
  holds("c", "n2", 16, 2000);
  waits("high", "10", 1000);
  preemptor.step();
  ASSERT_THAT(evicted(), ElementsAre("a"));
  deleted("a", "n1", 16);
  clock.advance(ClusterModel::kLinger);
  model.expire();
  EXPECT_THAT(why_not("other", "8", 1000, "n1"), HasSubstr("largest free slice 6 GiB < 8 GiB"));
  EXPECT_EQ(why_not("other", "6", 0, "n1"), "") << "the rest of the card is free for all";
  EXPECT_EQ(why_not("above", "16", 1001, "n1"), "");
  EXPECT_EQ(why_not("high", "10", 1000, "n1"), "");
  const auto high = model.pod("high");
  ASSERT_TRUE(high);
  const auto bound = model.reserve("n1", *high, kPolicies[0], leader.epoch());
  ASSERT_TRUE(bound) << bound.error().what;
  add({.uid = "high", .node = "n1", .record = record_text(bound->slices), .gib = "10", .priority = 1000});
  EXPECT_EQ(model.stats().nominated, 0U);
  EXPECT_EQ(why_not("other", "6", 0, "n1"), "");
}

TEST_F(PreemptorTest, GivesUpRoomThatThePodDoesNotUse) {
  holds("a", "n1", 16);
  waits("high", "10", 1000, {"n1"});
  holds("c", "n2", 16, 2000);
  preemptor.step();
  ASSERT_THAT(evicted(), ElementsAre("a"));
  deliver("high");
  deleted("a", "n1", 16);
  clock.advance(ClusterModel::kLinger);
  model.expire();
  preemptor.step();
  EXPECT_EQ(model.stats().nominated, 1U);
  clock.advance(Preemptor::kFreeFor);
  lead();
  preemptor.step();
  EXPECT_EQ(model.stats().nominated, 0U);
  EXPECT_EQ(nominated("high"), "");
  EXPECT_EQ(preemptor.stats().given_up, 1U);
  EXPECT_EQ(why_not("other", "16", 0, "n1"), "");
}

TEST_F(PreemptorTest, EvictsNoPodForAnEqualPriorityOrWithoutEffect) {
  holds("a", "n1", 16, 5);
  holds("b", "n2", 16, 5);
  waits("equal", "8", 5);
  waits("large", "17", 1000);
  waits("elsewhere", "8", 1000, {"n7"});
  auto never = nlohmann::json::parse(pod_object({.uid = "never", .priority = 1000}));
  never["spec"]["preemptionPolicy"] = "Never";
  api.put(pod_path("never"), never.dump());
  deliver("never");
  reject("never", {"n1", "n2"});
  add({.uid = "untried", .priority = 1000});
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  EXPECT_EQ(model.stats().nominated, 0U);
}

TEST_F(PreemptorTest, EvictsNoPodWhileItFitsOrAnEndingPodMakesRoom) {
  holds("a", "n1", 16);
  holds("b", "n2", 8, 0);
  waits("fits", "8", 1000);
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  holds("ends", "n2", 8, 7, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  waits("soon", "8", 1000);
  clock.advance(2s);
  reject("fits", {"n1", "n2"});
  reject("soon", {"n1", "n2"});
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
}

TEST_F(PreemptorTest, ChoosesOtherVictimsIfABudgetProtectsOne) {
  holds("cheap", "n1", 16, 0, R"(,"labels":{"app":"safe"})");
  holds("dear", "n2", 16, 7);
  budget("one", "safe", 0);
  waits("high", "8", 1000);
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("dear"));
}

TEST_F(PreemptorTest, ReportsThatOnlyBudgetsPreventTheEviction) {
  holds("cheap", "n1", 16, 0, R"(,"labels":{"app":"safe"})");
  holds("top", "n2", 16, 2000);
  budget("one", "safe", 0);
  waits("high", "8", 1000);
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].message, HasSubstr("PodDisruptionBudgets protect them"));
  EXPECT_EQ(model.stats().nominated, 0U);
}

TEST_F(PreemptorTest, ChoosesOtherVictimsAfterARefusedEviction) {
  holds("cheap", "n1", 16);
  holds("dear", "n2", 16, 7);
  waits("high", "8", 1000);
  api.fail_next({.verb = "create", .path = "cheap/eviction", .code = Code::kFailedPrecondition});
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  EXPECT_EQ(preemptor.stats().by_budget, 1U);
  EXPECT_EQ(nominated("high"), "");
  EXPECT_EQ(model.stats().nominated, 0U);
  deliver("high");
  clock.advance(Preemptor::kRetry);
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("dear"));
  EXPECT_EQ(nominated("high"), "n2");
}

TEST_F(PreemptorTest, EvictsTheSameVictimLaterIfTheServerIsOverloaded) {
  holds("cheap", "n1", 16);
  holds("dear", "n2", 16, 7);
  waits("high", "8", 1000);
  for (const Code code : {Code::kResourceExhausted, Code::kUnavailable}) {
    api.fail_next({.verb = "create", .path = "cheap/eviction", .code = code});
    preemptor.step();
    EXPECT_THAT(evicted(), IsEmpty());
    deliver("high");
    clock.advance(Preemptor::kRetry);
    lead();
    reject("high", {"n1", "n2"});
  }
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("cheap"));
  EXPECT_EQ(preemptor.stats().by_budget, 0U);
}

// The eviction may have taken effect.
TEST_F(PreemptorTest, ReadsThePodAfterAnEvictionOfUnknownOutcome) {
  for (const Code code : {Code::kInternal, Code::kDeadlineExceeded}) {
    holds("cheap", "n1", 16);
    holds("dear", "n2", 16, 7);
    waits("high", "8", 1000);
    api.fail_next({.verb = "create", .path = "cheap/eviction", .code = code, .done = true});
    const auto before = preemptor.stats();
    preemptor.step();
    EXPECT_EQ(preemptor.stats().victims, before.victims + 1);
    EXPECT_EQ(nominated("high"), "n1");
    EXPECT_EQ(model.stats().nominated, 1U) << "the room of the ending pod is kept";
    EXPECT_EQ(preemptor.stats().undone, 0U);
    model.pods().change({KubeChange::Kind::kDeleted, *api.object(pod_path("high"))});
    preemptor.step();
  }
}

TEST_F(PreemptorTest, ChoosesOtherVictimsIfThePodOfAFailedEvictionStays) {
  // A pod with two PodDisruptionBudgets: the Eviction API returns a plain 500. A lost race for a budget: 504.
  for (const Code code : {Code::kInternal, Code::kDeadlineExceeded}) {
    holds("cheap", "n1", 16);
    holds("dear", "n2", 16, 7);
    waits("high", "8", 1000);
    api.fail_next({.verb = "create", .path = "cheap/eviction", .code = code});
    preemptor.step();
    EXPECT_THAT(evicted(), IsEmpty());
    EXPECT_EQ(model.stats().nominated, 0U);
    clock.advance(Preemptor::kBudgetAgain);
    lead();
  }
  api.fail_next({.verb = "create", .path = "cheap/eviction", .code = Code::kInternal});
  reject("high", {"n1", "n2"});
  preemptor.step();
  deliver("high");
  clock.advance(Preemptor::kRetry);
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("dear"));
}

/// The watch decides: it shows later whether the pod is terminating.
TEST_F(PreemptorTest, CountsAVictimThatCannotBeReadAsNotEvicted) {
  holds("cheap", "n1", 16);
  holds("dear", "n2", 16, 7);
  waits("high", "8", 1000);
  api.fail_next({.verb = "create", .path = "cheap/eviction", .code = Code::kInternal, .done = true});
  api.fail_next({.verb = "get", .path = "cheap"});
  preemptor.step();
  EXPECT_EQ(preemptor.stats().victims, 0U);
  EXPECT_EQ(model.stats().nominated, 0U);
  EXPECT_THAT(events, IsEmpty()) << "an eviction is reported only if it is known";
  holds("cheap", "n1", 16, 0, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  deliver("high");
  clock.advance(Preemptor::kRetry);
  reject("high", {"n1", "n2"});
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("cheap")) << "the room of the terminating pod is enough";
}

TEST_F(PreemptorTest, CountsAVictimWithAnUnreadableAnswerAsNotEvicted) {
  holds("cheap", "n1", 16);
  holds("dear", "n2", 16, 7);
  waits("high", "8", 1000);
  api.answer(pod_path("cheap"), "<html>bad gateway</html>");
  for (const Code code : {Code::kInternal, Code::kAlreadyExists}) {
    api.fail_next({.verb = "create", .path = "cheap/eviction", .code = code});
    preemptor.step();
    EXPECT_EQ(preemptor.stats().victims, 0U);
    EXPECT_EQ(model.stats().nominated, 0U);
    deliver("high");
    clock.advance(Preemptor::kBudgetAgain);
    lead();
    reject("high", {"n1", "n2"});
  }
}

TEST_F(PreemptorTest, EvictsAllOfSeveralVictimsOrNone) {
  holds("a", "n1", 8);
  holds("b", "n1", 8);
  holds("top", "n2", 16, 2000);
  waits("high", "16", 1000);
  // A budget; a dry run without an answer, which permits nothing; a conflict with another write, which is no eviction.
  for (const Code code : {Code::kFailedPrecondition, Code::kDeadlineExceeded, Code::kAlreadyExists}) {
    api.fail_next({.verb = "create", .path = "b/eviction", .code = code});
    preemptor.step();
    EXPECT_THAT(evicted(), IsEmpty());
    clock.advance(Preemptor::kBudgetAgain);
    lead();
    reject("high", {"n1", "n2"});
  }
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("a", "b"));
}

TEST_F(PreemptorTest, TouchesTheNodeIfTheSchedulersCallIsOld) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  waits("high", "8", 1000);
  clock.advance(Preemptor::kFresh + 1s);
  leader.step();
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  const bool touched = api.object("/api/v1/nodes/n1")->find("slices-free") != std::string::npos;
  EXPECT_TRUE(touched);
  reject("high", {"n2"});
  clock.advance(Preemptor::kRetry);
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("b"));
}

TEST_F(PreemptorTest, FollowerEvictsNoPodAndReportsToTheLeader) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  clock.advance(1h);
  waits("high", "8", 1000);
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  ASSERT_THAT(forwarded, SizeIs(1));
  EXPECT_EQ(forwarded[0].uid, "high");
  EXPECT_THAT(forwarded[0].nodes, ElementsAre("n1", "n2"));
}

TEST_F(PreemptorTest, FollowerKeepsTheRoomOfANomination) {
  clock.advance(1h);  // it does not lead
  holds("a", "n1", 16, 0, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  holds("top", "n2", 16, 2000);
  add({.uid = "high", .gib = "10", .priority = 1000});
  scheduler_nominates("high", "n1");
  preemptor.step();
  EXPECT_EQ(model.stats().nominated, 1U);
  deleted("a", "n1", 16);
  clock.advance(ClusterModel::kLinger);
  model.expire();
  EXPECT_THAT(why_not("other", "8", 0, "n1"), HasSubstr("largest free slice 6 GiB < 8 GiB"));
  EXPECT_EQ(why_not("high", "10", 1000, "n1"), "");
  model.pods().change({KubeChange::Kind::kDeleted, *api.object(pod_path("high"))});
  EXPECT_EQ(model.stats().nominated, 0U);
}

TEST_F(PreemptorTest, DoesNotRepeatKubeSchedulersOwnNomination) {
  holds("a", "n1", 16, 0, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  holds("top", "n2", 16, 2000);
  add({.uid = "high", .gib = "10", .priority = 1000});
  scheduler_nominates("high", "n1");
  preemptor.step();
  ASSERT_EQ(model.stats().nominated, 1U);
  scheduler_nominates("high", "");
  clock.advance(5s);
  leader.step();
  preemptor.step();
  EXPECT_EQ(nominated("high"), "");
}

/// kube-scheduler may be choosing victims itself, on nodes that lack CPU as well (preempt_verb.h).
TEST_F(PreemptorTest, EvictsNoPodWhileKubeSchedulerEvicts) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  waits("high", "8", 1000);
  unschedulable.put("high", {"n1"}, clock.now());
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty()) << "kube-scheduler's preempt call may follow in a moment";
  scheduler_nominates("high", "n2");
  clock.advance(1s);
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty()) << "kube-scheduler's victims on n2 are not known yet";
  for (int i = 0; i < 10; ++i) {
    clock.advance(1s);
    leader.step();
  }
  reject("high", {"n1"});
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("a")) << "kube-scheduler evicted no pod";
}

TEST_F(PreemptorTest, EvictsForAPodThatIsRetriedWithoutPause) {
  holds("a", "n1", 16);
  add({.uid = "high", .gib = "8", .priority = 1000});
  for (auto passed = 0ms; passed < Preemptor::kPatience; passed += 10ms) {
    unschedulable.put("high", {"n1"}, clock.now());
    preemptor.step();
    ASSERT_THAT(evicted(), IsEmpty()) << "kube-scheduler's preempt call may follow in a moment; after ms "
                                      << passed.count();
    clock.advance(10ms);
  }
  unschedulable.put("high", {"n1"}, clock.now());
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("a"));
}

/// A scheduling attempt that was in progress when the node was nominated clears the nomination.
TEST_F(PreemptorTest, NominatesAgainAfterAClearedNomination) {
  holds("a", "n1", 16);
  waits("high", "10", 1000, {"n1"});
  preemptor.step();
  ASSERT_THAT(evicted(), ElementsAre("a"));
  deliver("high");
  scheduler_nominates("high", "");
  preemptor.step();
  EXPECT_EQ(nominated("high"), "") << "at most once per kRetry";
  clock.advance(Preemptor::kRetry);
  preemptor.step();
  EXPECT_EQ(nominated("high"), "n1");
  const auto untouched = *api.object("/api/v1/nodes/n1");
  deliver("high");
  deleted("a", "n1", 16);
  clock.advance(ClusterModel::kLinger);
  model.expire();
  leader.step();
  scheduler_nominates("high", "");
  preemptor.step();
  EXPECT_EQ(nominated("high"), "n1");
  EXPECT_NE(*api.object("/api/v1/nodes/n1"), untouched) << "the room is free: kube-scheduler must retry";
  clock.advance(1h);  // it no longer leads
  deliver("high");
  scheduler_nominates("high", "");
  preemptor.step();
  EXPECT_EQ(nominated("high"), "") << "the leader nominates";
}

TEST_F(PreemptorTest, DoesNotEvictAStaticPod) {
  const auto record = record_text({slice("static", "GPU-1", 16)});
  auto object = nlohmann::json::parse(pod_object({.uid = "static", .node = "n1", .record = record}));
  object["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x";
  api.put(pod_path("static"), object.dump());
  deliver("static");
  waits("high", "8", 1000, {"n1"});
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
}

TEST_F(PreemptorTest, LooksAtNoPodWithoutAChange) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  preemptor.step();
  const auto before = preemptor.examined();
  EXPECT_EQ(preemptor.step(), clock.now() + kResync);
  holds("a", "n1", 16);  // its status
  clock.advance(kResync - 1ms);
  leader.step();
  preemptor.step();
  EXPECT_EQ(preemptor.examined(), before);
}

TEST_F(PreemptorTest, LooksOnlyAtThePodThatChanged) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  for (int i = 0; i < 50; ++i) add({.uid = "low" + std::to_string(i), .gib = "16"});
  preemptor.step();
  const auto before = preemptor.examined();
  waits("high", "16", 1000);
  preemptor.step();
  EXPECT_EQ(preemptor.examined(), before + 1);
  EXPECT_THAT(evicted(), SizeIs(1));
}

TEST_F(PreemptorTest, LooksAtAllWaitingPodsWhenAPodOfLowerPriorityHoldsCards) {
  holds("b", "n2", 16, 5);
  waits("middle", "16", 5, {"n1"});
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  holds("a", "n1", 16, 4);
  preemptor.step();
  EXPECT_THAT(evicted(), ElementsAre("a"));
}

TEST_F(PreemptorTest, FindsAPodWhoseChangeWasLostAtTheResync) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  preemptor.step();
  add({.uid = "high", .gib = "16", .priority = 1000});
  clock.advance(kResync - 1s);
  leader.step();
  reject("high", {"n1", "n2"});
  (void)preemptor.changes().take();  // lost
  preemptor.step();
  EXPECT_THAT(evicted(), IsEmpty());
  clock.advance(1s);
  lead();
  preemptor.step();
  EXPECT_THAT(evicted(), SizeIs(1));
}

TEST_F(PreemptorTest, ReturnsWhenAPodIsDue) {
  holds("a", "n1", 16);
  holds("b", "n2", 16);
  add({.uid = "high", .gib = "16", .priority = 1000});
  unschedulable.put("high", {"n1", "n2"}, clock.now());
  EXPECT_EQ(preemptor.step(), clock.now() + Preemptor::kSettle);
  EXPECT_THAT(evicted(), IsEmpty());
  clock.advance(Preemptor::kSettle);
  EXPECT_EQ(preemptor.step(), clock.now() + Preemptor::kRetry);
  EXPECT_THAT(evicted(), SizeIs(1));
}

}  // namespace
}  // namespace carve::control
