#include "app/control/api/wait_reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/control/api/read_api.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/testing/objects.h"

namespace carve::control {
namespace {

using namespace testing;  // NOLINT: the objects of the tests
using ::testing::HasSubstr;
using ::testing::SizeIs;

class WaitReasonsTest : public ::testing::Test {
 protected:
  void add_nodes(int count) {
    std::vector<std::string> nodes;
    std::vector<std::string> cards;
    for (int at = 0; at < count; ++at) {
      const auto name = "n" + std::to_string(at);
      nodes.push_back(node_object(name));
      cards.push_back(gpu_object(gpu(name, "GPU-" + std::to_string(at))));
    }
    model.nodes().replace(nodes);
    model.gpus().replace(cards);
  }
  void put(const std::string& uid, const std::string& gib) {
    model.pods().change({KubeChange::Kind::kPut, pod_object({.uid = uid, .gib = gib})});
  }
  std::vector<codec::WaitingPod> waiting() { return reasons.view(model, claims, rules_of(kPolicies[0])).waiting; }

  ManualClock clock;
  Log log{[](std::string_view) {}};
  ClaimBook claims{{}, log};
  ClusterModel model{{}, clock, log};
  WaitReasons reasons{clock};
};

TEST_F(WaitReasonsTest, SaysTheSameAsTheViewWithAllReasons) {
  add_nodes(1);
  put("a", "17");
  put("b", "3");
  const auto all = view_with_whys(model, claims, rules_of(kPolicies[0])).waiting;
  const auto seen = waiting();
  ASSERT_THAT(seen, SizeIs(2));
  for (std::size_t at = 0; at < 2; ++at) EXPECT_EQ(seen[at].why, all[at].why);
}

TEST_F(WaitReasonsTest, AReasonFollowsTheCluster) {
  add_nodes(1);
  put("a", "17");
  EXPECT_THAT(waiting()[0].why, HasSubstr("GiB"));
  model.gpus().replace({});
  EXPECT_EQ(waiting()[0].why, "no node has cards");
}

// In a large cluster a call computes the reason of one pod only; the oldest first, so each has its turn.
TEST_F(WaitReasonsTest, ManyNodesTakeTurns) {
  add_nodes(static_cast<int>(WaitReasons::kNodesPerCall / 2) + 1);
  put("a", "13");
  put("b", "13");
  const auto known = [](const std::vector<codec::WaitingPod>& pods) {
    return std::count_if(pods.begin(), pods.end(), [](const auto& pod) { return !pod.why.empty(); });
  };
  EXPECT_EQ(known(waiting()), 1);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(known(waiting()), 2);
}

}  // namespace
}  // namespace carve::control
