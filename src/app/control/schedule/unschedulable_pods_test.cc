#include "app/control/schedule/unschedulable_pods.h"

#include <gtest/gtest.h>

#include "codec/extender/extender.h"

namespace carve::control {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

class UnschedulablePodsTest : public ::testing::Test {
 protected:
  Strings published() {
    const auto uids = queue.take().pods;
    return {uids.begin(), uids.end()};
  }
  const Owner owner{OwnerKind::kPod, "u"};
  const Clock::Time now{5s};
  UnschedulablePods pods;
  ChangeQueue queue{&pods.changes()};
};

TEST_F(UnschedulablePodsTest, RemembersTheNodesThatMayHaveRoomLater) {
  FitView fit;
  fit.refused = {{"full", nullptr, false, {}}, {"other", nullptr, true, {}}, {"busy", nullptr, false, {}}};
  pods.observe(owner, fit, now);
  const auto note = pods.find("u");
  ASSERT_TRUE(note);
  EXPECT_EQ(*note->nodes, (Strings{"full", "busy"}));
  EXPECT_EQ(note->at, now);
  EXPECT_EQ(note->asked, 3U);
  EXPECT_EQ(published(), Strings{"u"}) << "the preemptor and the node nominator act on it";
}

TEST_F(UnschedulablePodsTest, ForgetsAPodThatANodeServes) {
  pods.put("u", {"full"}, now, 1);
  EXPECT_EQ(published(), Strings{"u"});
  FitView fit;
  fit.nodes.push_back({"half"});
  pods.observe(owner, fit, now);
  EXPECT_FALSE(pods.find("u"));
  EXPECT_EQ(published(), Strings{});
}

TEST_F(UnschedulablePodsTest, TakesTheReportOfAnotherReplica) {
  EXPECT_TRUE(pods.put_report(codec::encode_turned_away({"u", {"n1", "n2"}}), now));
  const auto note = pods.find("u");
  ASSERT_TRUE(note);
  EXPECT_EQ(*note->nodes, (Strings{"n1", "n2"}));
  EXPECT_EQ(note->asked, 0U);
  const auto refused = pods.put_report("{", now);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace carve::control
