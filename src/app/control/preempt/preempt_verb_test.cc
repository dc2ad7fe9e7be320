#include "app/control/preempt/preempt_verb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/control/state/policy_watcher.h"
#include "app/control/testing/objects.h"
#include "codec/extender/extender.h"

namespace carve::control {
namespace {

using namespace testing;  // NOLINT: the objects of the tests
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Strings = std::vector<std::string>;

class PreemptVerbTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model.nodes().replace({node_object("n1"), node_object("n2")});
    model.gpus().replace({gpu_object(gpu("n1", "GPU-1")), gpu_object(gpu("n2", "GPU-2"))});
    model.pods().replace({});
  }
  void holds(const std::string& uid, const std::string& node, std::uint64_t gib, int priority = 0,
             const std::string& more = "") {
    const std::string card = node == "n1" ? "GPU-1" : "GPU-2";
    model.pods().change({KubeChange::Kind::kPut,
                         pod_object({.uid = uid, .node = node, .record = record_text({slice(uid, card, gib)}),
                                     .phase = "Running", .more = more, .priority = priority})});
  }
  /// The answer to kube-scheduler's proposal: node → UIDs.
  std::string answer(const std::string& gib, const std::map<std::string, Strings>& proposed, bool slots = true) {
    std::map<std::string, codec::PreemptionArgs::Victims> nodes;
    for (const auto& [node, uids] : proposed) nodes[node] = {uids, 0};
    auto call = codec::preemption_result(nodes);
    call.insert(1, R"("Pod":)" + pod_object({.uid = "p", .gib = gib, .priority = 10, .slots = slots}) + ",");
    return verb.answer(call);
  }
  static std::string nodes(const std::map<std::string, Strings>& left) {
    std::map<std::string, codec::PreemptionArgs::Victims> nodes;
    for (const auto& [node, uids] : left) nodes[node] = {uids, 0};
    return codec::preemption_result(nodes);
  }
  ManualClock clock;
  Strings lines;
  Log log{[this](std::string_view line) { lines.emplace_back(line); }};
  ClusterModel model{{}, clock, log};
  std::shared_ptr<const PlacementRules> rules = std::make_shared<PlacementRules>(rules_of(kPolicies[0]));
  Result<std::vector<codec::Budget>> budgets = std::vector<codec::Budget>();
  int asked = 0;
  Strings preempting;
  PreemptVerb verb{{model,
                    {},
                    [this] { return rules; },
                    [this] {
                      ++asked;
                      return budgets;
                    },
                    [this](const Owner& owner) { preempting.push_back(owner.uid); },
                    log}};
};

TEST_F(PreemptVerbTest, KeepsTheVictimsOfANodeWhereThePodWillFitByCard) {
  holds("top", "n1", 16, 20);
  EXPECT_EQ(answer("8", {{"n1", {"cpu"}}, {"n2", {"other"}}, {"far", {"cpu"}}}), nodes({{"n2", {"other"}}}));
  EXPECT_THAT(preempting, ElementsAre("p"));
  EXPECT_EQ(asked, 0) << "no pod is evicted for cards";
}

TEST_F(PreemptVerbTest, LeavesPodsWithoutCardsUnchangedAndDropsInvalidCalls) {
  EXPECT_EQ(answer("0", {{"n1", {"x"}}, {"far", {"y"}}}), nodes({{"n1", {"x"}}, {"far", {"y"}}}));
  EXPECT_EQ(answer("64", {{"n1", {"x"}}, {"far", {"y"}}}, false), nodes({{"n1", {"x"}}, {"far", {"y"}}}));
  EXPECT_THAT(lines, IsEmpty());
  EXPECT_EQ(verb.answer("{"), nodes({}));
  EXPECT_EQ(answer("x", {{"n1", {"x"}}}), nodes({}));
  EXPECT_THAT(preempting, IsEmpty());
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_THAT(lines[0], HasSubstr("not JSON"));
  EXPECT_THAT(lines[1], HasSubstr("pod s/p: "));
}

TEST_F(PreemptVerbTest, NamesTheVictimsThatCardsNeedFirst) {
  holds("a", "n1", 16);
  holds("top", "n2", 16, 20);
  EXPECT_EQ(answer("8", {{"n1", {"cpu"}}, {"n2", {"cpu"}}}), nodes({{"n1", {"a"}}}));
  EXPECT_EQ(asked, 1);
  holds("a", "n1", 8);
  holds("b", "n1", 8);
  EXPECT_EQ(answer("16", {{"n1", {"b", "cpu"}}}), nodes({{"n1", {"a", "b"}}}));
  EXPECT_EQ(answer("8", {{"n1", {"b", "cpu"}}}), nodes({{"n1", {"b", "cpu"}}}));
}

TEST_F(PreemptVerbTest, RespectsBudgetsAndTreatsUnreadableOnesAsProtection) {
  holds("a", "n1", 16, 0, R"(,"labels":{"app":"safe"})");
  const auto one = codec::parse_budget(R"({"metadata":{"name":"b","namespace":"s"},"spec":{"selector":{"matchLabels":)"
                                       R"({"app":"safe"}}},"status":{"disruptionsAllowed":0}})");
  ASSERT_TRUE(one);
  budgets = std::vector{*one};
  EXPECT_EQ(answer("8", {{"n1", {"cpu"}}}), nodes({}));
  budgets = fail(Code::kUnavailable, "away");
  EXPECT_EQ(answer("8", {{"n1", {"cpu"}}}), nodes({}));
  EXPECT_THAT(preempting, IsEmpty());
  budgets = std::vector<codec::Budget>();
  EXPECT_EQ(answer("8", {{"n1", {"cpu"}}}), nodes({{"n1", {"a"}}}));
}

/// The second call, after the victims that the cards needed are gone: the victims for CPU, on that node only.
TEST_F(PreemptVerbTest, KeepsOnlyTheNodeWhereRoomIsBeingMade) {
  holds("a", "n1", 16, 0, R"(,"deletionTimestamp":"2026-01-01T00:00:00Z")");
  model.put_nominated_reservation("n1",
                                  {{OwnerKind::kPod, "p"}, 10, {slice("p", "GPU-1", 8)}, {{OwnerKind::kPod, "a"}}},
                                  clock.now() + std::chrono::seconds(60));
  EXPECT_EQ(answer("8", {{"n1", {"cpu"}}, {"n2", {"cpu"}}}), nodes({{"n1", {"cpu"}}}));
  EXPECT_EQ(answer("8", {{"n2", {"cpu"}}}), nodes({}));
}

}  // namespace
}  // namespace carve::control
