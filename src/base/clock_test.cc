#include "base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace carve {
namespace {

using std::chrono::seconds;

TEST(ManualClock, DoesNotMoveByItself) {
  ManualClock clock;
  const auto start = clock.now();
  const auto wall = clock.wall_now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(seconds(5));
  EXPECT_EQ(clock.now() - start, seconds(5));
  EXPECT_EQ(clock.wall_now() - wall, seconds(5));
}

TEST(ManualClock, WakesAThreadAtItsDeadline) {
  ManualClock clock;
  bool reached = false;
  std::jthread sleeper(
      [&](const std::stop_token& stop) { reached = clock.sleep_for(seconds(10), stop); });
  clock.wait_for_sleepers(1);
  clock.advance(seconds(10));
  sleeper.join();
  EXPECT_TRUE(reached);
}

// Otherwise a test could check the results of a round that has not begun.
TEST(ManualClock, AThreadWhoseDeadlineHasPassedIsNotASleeper) {
  ManualClock clock;
  std::atomic<int> rounds = 0;
  std::jthread worker([&](const std::stop_token& stop) {
    while (clock.sleep_for(seconds(3), stop)) ++rounds;
  });
  for (int i = 0; i < 1000; ++i) {
    clock.wait_for_sleepers(1);
    ASSERT_EQ(rounds, i);
    clock.advance(seconds(3));
  }
}

TEST(ManualClock, AStopEndsASleep) {
  ManualClock clock;
  bool reached = true;
  std::jthread sleeper(
      [&](const std::stop_token& stop) { reached = clock.sleep_for(seconds(10), stop); });
  clock.wait_for_sleepers(1);
  sleeper.request_stop();
  sleeper.join();
  EXPECT_FALSE(reached);
}

TEST(SystemClock, AStopEndsASleep) {
  SystemClock clock;
  std::stop_source source;
  source.request_stop();
  EXPECT_FALSE(clock.sleep_for(std::chrono::hours(1), source.get_token()));
  EXPECT_TRUE(clock.sleep_until(clock.now(), {}));
}

}  // namespace
}  // namespace carve
