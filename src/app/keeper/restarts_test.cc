#include "app/keeper/restarts.h"

#include <gtest/gtest.h>

#include <csignal>

namespace carve::keeper {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ProcessEnd kCrash{0, SIGSEGV};

struct RestartsTest : testing::Test {
  /// One agent: it serves after `start`, and crashes `after` that.
  std::optional<Clock::Duration> life(Clock::Duration start, Clock::Duration after) {
    now += start;
    restarts.served(now);
    now += after;
    return restarts.pause_after(kCrash, now);
  }
  std::optional<Clock::Duration> death(Clock::Duration after) {
    now += after;
    return restarts.pause_after(kCrash, now);
  }
  Restarts restarts;
  Clock::Time now{seconds(1000)};
};

TEST_F(RestartsTest, RestartsImmediatelyAfterASingleCrash) {
  EXPECT_EQ(life(seconds(1), seconds(60)), Clock::Duration::zero());
  EXPECT_EQ(life(seconds(1), seconds(60)), Clock::Duration::zero());
}

TEST_F(RestartsTest, TreatsAnExitWithAnErrorAsACrash) {
  restarts.served(now);
  EXPECT_EQ(restarts.pause_after({1, 0}, now), Clock::Duration::zero());
}

TEST_F(RestartsTest, DoesNotRestartAfterExitCodeZero) {
  restarts.served(now);
  EXPECT_FALSE(restarts.pause_after({0, 0}, now));
}

TEST_F(RestartsTest, DoesNotRestartAnAgentThatNeverServed) {
  EXPECT_FALSE(death(milliseconds(10)));
  Restarts flags;
  EXPECT_FALSE(flags.pause_after({2, 0}, now));
}

TEST_F(RestartsTest, DoublesThePauseForCrashesInARow) {
  EXPECT_EQ(life(seconds(1), seconds(1)), Clock::Duration::zero());
  EXPECT_EQ(life(seconds(1), seconds(1)), milliseconds(25));
  EXPECT_EQ(life(seconds(1), seconds(1)), milliseconds(50));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(life(seconds(1), seconds(1)));
  EXPECT_EQ(life(seconds(1), seconds(1)), milliseconds(250));
  EXPECT_EQ(life(seconds(1), seconds(10)), Clock::Duration::zero()) << "it had served for 10 s";
}

TEST_F(RestartsTest, GivesUpAfterAHundredCrashesInARow) {
  for (int i = 0; i < Restarts::kMostInARow; ++i) ASSERT_TRUE(life(milliseconds(300), seconds(1))) << i;
  EXPECT_FALSE(life(milliseconds(300), seconds(1)));
}

TEST_F(RestartsTest, GivesUpWhenNoAgentHasServedFor30Seconds) {
  ASSERT_TRUE(life(seconds(1), seconds(60)));
  for (int i = 0; i < 29; ++i) ASSERT_TRUE(death(seconds(1))) << i;
  EXPECT_FALSE(death(seconds(1)));
}

TEST_F(RestartsTest, WaitsForAnAgentThatStartsSlowly) {
  ASSERT_TRUE(life(seconds(1), seconds(60)));
  EXPECT_EQ(life(seconds(90), seconds(60)), Clock::Duration::zero()) << "it served at last";
}

}  // namespace
}  // namespace carve::keeper
