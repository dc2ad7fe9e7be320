#include "app/control/bind/leader_route.h"

#include <gtest/gtest.h>

#include "app/control/bind/bind_route.h"
#include "base/clock.h"

namespace carve::control {
namespace {

class LeaderRouteTest : public ::testing::Test {
 protected:
  std::string answer() {
    return route_.answer("/choose-here", "pod", [](std::string_view call) { return "own " + std::string(call); });
  }
  bool leads_ = false;
  bool answers_ = true;
  std::string holder_ = holder_identity("a_1", "10.0.0.1:8443");
  std::string asked_;
  ManualClock clock_;
  LeaderRoute route_{{[this] { return leads_; }, [this] { return holder_; },
                      [this](const std::string& address, std::string_view path,
                             std::string_view call) -> Result<std::string> {
                        asked_ += address + std::string(path) + " ";
                        if (!answers_) return fail(Code::kDeadlineExceeded, "no answer");
                        return "leader's " + std::string(call);
                      },
                      clock_}};
};

TEST_F(LeaderRouteTest, LeaderAnswersItself) {
  leads_ = true;
  EXPECT_FALSE(route_.forwards());
  EXPECT_EQ(answer(), "own pod");
  EXPECT_EQ(asked_, "");
}

TEST_F(LeaderRouteTest, FollowerReturnsTheLeadersAnswer) {
  EXPECT_TRUE(route_.forwards());
  EXPECT_EQ(answer(), "leader's pod");
  EXPECT_EQ(asked_, "10.0.0.1:8443/choose-here ");
}

TEST_F(LeaderRouteTest, FollowerAnswersItselfWithoutAReachableLeader) {
  holder_ = "a_1";
  EXPECT_FALSE(route_.forwards());
  EXPECT_EQ(answer(), "own pod");
  holder_.clear();
  EXPECT_EQ(answer(), "own pod");
  EXPECT_EQ(asked_, "");
}

TEST_F(LeaderRouteTest, ALeaderThatDoesNotAnswerIsNotCalledForAWhile) {
  answers_ = false;
  EXPECT_EQ(answer(), "own pod");
  EXPECT_EQ(route_.unanswered(), 1U);
  asked_.clear();
  answers_ = true;
  clock_.advance(LeaderRoute::kAvoid - std::chrono::milliseconds(1));
  EXPECT_FALSE(route_.forwards());
  EXPECT_EQ(answer(), "own pod");
  EXPECT_EQ(asked_, "");
  clock_.advance(std::chrono::milliseconds(1));
  EXPECT_TRUE(route_.forwards());
  EXPECT_EQ(answer(), "leader's pod");
  EXPECT_EQ(route_.unanswered(), 1U);
}

TEST_F(LeaderRouteTest, ANewLeaderStopsForwarding) {
  EXPECT_EQ(answer(), "leader's pod");
  leads_ = true;
  EXPECT_EQ(answer(), "own pod");
  leads_ = false;
  holder_ = holder_identity("b_2", "10.0.0.2:8443");
  EXPECT_EQ(answer(), "leader's pod");
  EXPECT_EQ(asked_, "10.0.0.1:8443/choose-here 10.0.0.2:8443/choose-here ");
}

}  // namespace
}  // namespace carve::control
