#include "app/keeper/restarts.h"

#include <gtest/gtest.h>

#include <csignal>

namespace carve::keeper {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ProcessEnd kCrash{0, SIGSEGV};

struct Restarted : testing::Test {
  /// One agent's life: it comes to serve after `start`, and crashes `after` that.
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

TEST_F(Restarted, ASingleCrashAtOnce) {
  EXPECT_EQ(life(seconds(1), seconds(60)), Clock::Duration::zero());
  EXPECT_EQ(life(seconds(1), seconds(60)), Clock::Duration::zero());
}

TEST_F(Restarted, AnExitWithAnErrorIsACrash) {
  restarts.served(now);
  EXPECT_EQ(restarts.pause_after({1, 0}, now), Clock::Duration::zero());
}

TEST_F(Restarted, AnEndInOrderIsTheEnd) {
  restarts.served(now);
  EXPECT_FALSE(restarts.pause_after({0, 0}, now));
}

TEST_F(Restarted, WhatNeverServedIsNotHeld) {
  EXPECT_FALSE(death(milliseconds(10)));
  Restarts flags;
  EXPECT_FALSE(flags.pause_after({2, 0}, now));
}

TEST_F(Restarted, LaterAndLaterInARow) {
  EXPECT_EQ(life(seconds(1), seconds(1)), Clock::Duration::zero());
  EXPECT_EQ(life(seconds(1), seconds(1)), milliseconds(25));
  EXPECT_EQ(life(seconds(1), seconds(1)), milliseconds(50));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(life(seconds(1), seconds(1)));
  EXPECT_EQ(life(seconds(1), seconds(1)), milliseconds(250));
  EXPECT_EQ(life(seconds(1), seconds(10)), Clock::Duration::zero()) << "it had proven itself";
}

TEST_F(Restarted, UntilTheHundredthInARow) {
  for (int i = 0; i < Restarts::kMostInARow; ++i) ASSERT_TRUE(life(milliseconds(300), seconds(1))) << i;
  EXPECT_FALSE(life(milliseconds(300), seconds(1)));
}

TEST_F(Restarted, OrUntilNoneHasServedFor30Seconds) {
  ASSERT_TRUE(life(seconds(1), seconds(60)));
  for (int i = 0; i < 29; ++i) ASSERT_TRUE(death(seconds(1))) << i;
  EXPECT_FALSE(death(seconds(1)));
}

TEST_F(Restarted, AnAgentThatTakesItsTimeIsNotGivenUp) {
  ASSERT_TRUE(life(seconds(1), seconds(60)));
  EXPECT_EQ(life(seconds(90), seconds(60)), Clock::Duration::zero()) << "it served in the end";
}

}  // namespace
}  // namespace carve::keeper
