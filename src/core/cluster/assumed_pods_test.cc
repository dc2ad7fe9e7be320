#include "core/cluster/assumed_pods.h"

#include <gtest/gtest.h>

namespace carve {
namespace {

const CardId kCard("GPU-0");
Owner pod(const std::string& uid) { return {OwnerKind::kPod, uid}; }
Slice slice(const std::string& uid, std::uint64_t gib) { return {pod(uid), "c", kCard, Bytes::gib(gib), CoreShare(1)}; }

NodeState empty_node() {
  NodeState state;
  Card card;
  card.id = kCard;
  card.memory = Bytes::gib(16);
  EXPECT_TRUE(state.ledger.put_card(card));
  return state;
}
AssumedPods::Node node() { return std::make_shared<const NodeState>(empty_node()); }
AssumedPods::Node node_with(const Slice& slice) {
  NodeState state = empty_node();
  EXPECT_TRUE(state.ledger.add({slice}));
  return std::make_shared<const NodeState>(std::move(state));
}

/// What is used of the card, in GiB, as pod `who` sees it.
std::uint64_t taken(AssumedPods& expected, const AssumedPods::Node& state, const std::string& who) {
  const auto ahead = expected.ahead("n1", state, pod(who));
  return (ahead ? ahead : state)->ledger.find(kCard)->use.memory.count() >> 30U;
}

const Clock::Time kNow{std::chrono::seconds(100)};

TEST(AssumedPods, OtherPodsSeeTheCapacityAsUsedUntilItExpires) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  EXPECT_EQ(taken(expected, node(), "b"), 4U);
  EXPECT_EQ(taken(expected, node(), "a"), 0U);
  EXPECT_FALSE(expected.ahead("n2", node(), pod("b")));
  expected.expire(kNow + AssumedPods::kFor - std::chrono::milliseconds(1));
  EXPECT_EQ(taken(expected, node(), "b"), 4U);
  expected.expire(kNow + AssumedPods::kFor);
  EXPECT_FALSE(expected.ahead("n1", node(), pod("b")));
  EXPECT_EQ(expected.size(), 0U);
}

TEST(AssumedPods, AnAnswerDoesNotHideALaterAssumption) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  const auto state = node();
  EXPECT_EQ(taken(expected, state, "z"), 4U);
  expected.expect(pod("b"), "n1", {slice("b", 8)}, kNow);
  EXPECT_EQ(taken(expected, state, "z"), 12U);
  expected.forget(pod("a"));
  EXPECT_EQ(taken(expected, state, "z"), 8U);
}

TEST(AssumedPods, TheBindingFindsWhatWasChosenAndWhy) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow, "fits best");
  EXPECT_EQ(expected.sent_for(pod("a"), "n1"), std::vector<Slice>{slice("a", 4)});
  EXPECT_EQ(expected.why_sent(pod("a"), "n1"), "fits best");
  EXPECT_TRUE(expected.sent_for(pod("a"), "n2").empty());
  EXPECT_EQ(expected.why_sent(pod("a"), "n2"), "");
  EXPECT_EQ(expected.why_sent(pod("b"), "n1"), "");
  EXPECT_EQ(expected.nodes(), std::vector<std::string_view>{"n1"});
}

// A short pod may be bound and deleted between two queries. It is then never seen on the node, and it does not arrive
// later.
TEST(AssumedPods, APodIsAssumedOnlyBrieflyAfterItsBindingBegins) {
  AssumedPods expected;
  expected.binding_begins(pod("nobody"), kNow);
  for (const char* uid : {"a", "b"}) expected.expect(pod(uid), "n1", {slice(uid, 4)}, kNow);
  expected.binding_begins(pod("a"), kNow + std::chrono::seconds(1));
  expected.binding_begins(pod("b"), kNow + AssumedPods::kFor - std::chrono::seconds(1));
  expected.expire(kNow + std::chrono::seconds(1) + AssumedPods::kAfterBinding);
  EXPECT_EQ(taken(expected, node(), "c"), 4U);
  expected.expire(kNow + AssumedPods::kFor);
  EXPECT_EQ(taken(expected, node(), "c"), 0U) << "never longer than without a Binding";
}

TEST(AssumedPods, APodThatIsSentElsewhereIsAssumedOnlyThere) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  expected.expect(pod("a"), "n2", {slice("a", 4)}, kNow);
  EXPECT_FALSE(expected.ahead("n1", node(), pod("b")));
  EXPECT_TRUE(expected.ahead("n2", node(), pod("b")));
  expected.forget(pod("a"));
  EXPECT_FALSE(expected.ahead("n2", node(), pod("b")));
  EXPECT_EQ(expected.size(), 0U);
}

TEST(AssumedPods, APodThatHasArrivedIsNotCountedTwice) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  const auto there = node_with(slice("a", 4));
  EXPECT_EQ(taken(expected, there, "b"), 4U);
  EXPECT_FALSE(expected.ahead("n1", there, pod("b")));
  EXPECT_EQ(taken(expected, node(), "b"), 0U) << "it arrived and was deleted";
}

TEST(AssumedPods, AReservedPodIsStillAssumed) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  EXPECT_TRUE(expected.sent_for(pod("a"), "n2").empty());
  EXPECT_EQ(expected.sent_for(pod("a"), "n1"), std::vector<Slice>{slice("a", 4)});
  EXPECT_EQ(taken(expected, node(), "b"), 4U);
}

TEST(AssumedPods, APodThatNoLongerFitsIsLeftOut) {
  AssumedPods expected;
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  expected.expect(pod("b"), "n1", {slice("b", 2)}, kNow);
  EXPECT_EQ(taken(expected, node_with(slice("big", 14)), "c"), 16U);
}

TEST(AssumedPods, TheFutureNodeIsRebuiltOnlyWhenTheNodeOrItsEntriesChange) {
  AssumedPods expected;
  const auto empty = node();
  expected.expect(pod("a"), "n1", {slice("a", 4)}, kNow);
  const auto first = expected.ahead("n1", empty, pod("x"));
  EXPECT_EQ(expected.ahead("n1", empty, pod("y")), first);
  EXPECT_EQ(taken(expected, empty, "a"), 0U) << "a pod does not see its own entry";
  EXPECT_EQ(taken(expected, empty, "y"), 4U);
  EXPECT_EQ(taken(expected, node_with(slice("big", 8)), "y"), 12U) << "another object";
  expected.expect(pod("b"), "n1", {slice("b", 2)}, kNow);
  EXPECT_EQ(taken(expected, empty, "y"), 6U);
  expected.forget(pod("a"));
  EXPECT_EQ(taken(expected, empty, "y"), 2U);
  expected.expire(kNow + AssumedPods::kFor);
  EXPECT_EQ(taken(expected, empty, "y"), 0U);
}

}  // namespace
}  // namespace carve
