#include "app/node/departure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carve::node {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// A clock that advances only by waiting.
class PassingClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override { return now_; }
  [[nodiscard]] WallTime wall_now() const override { return {}; }
  bool sleep_until(Time deadline, const std::stop_token&) override {
    now_ = std::max(now_, deadline);
    return true;
  }

 private:
  Time now_{1h};
};

class DepartureTest : public ::testing::Test {
 protected:
  /// The duration of wait().
  Clock::Duration leave() {
    const auto begun = clock.now();
    const Departure departure{[&] { return said && clock.now() - begun >= *said; },
                              [&] { return unfinished(clock.now() - begun); }, heeded};
    left = departure.wait(clock);
    return clock.now() - begun;
  }
  static std::function<std::vector<std::string>(Clock::Duration)> open_between(Clock::Duration from,
                                                                               Clock::Duration until) {
    return [=](Clock::Duration at) {
      return at >= from && at < until ? std::vector<std::string>{"pod s/p"} : std::vector<std::string>();
    };
  }

  PassingClock clock;
  std::optional<Clock::Duration> said = 200ms;  // after the beginning; nullopt: never
  std::function<std::vector<std::string>(Clock::Duration)> unfinished = open_between(0s, 0s);
  bool heeded = true;
  std::vector<std::string> left;
};

TEST_F(DepartureTest, WaitsUntilControlHasSeenTheCondition) {
  EXPECT_EQ(leave(), 200ms + Departure::kQuiet);
  EXPECT_THAT(left, IsEmpty());
}

TEST_F(DepartureTest, WaitsOnlyForUnfinishedPodsWithoutControl) {
  heeded = false;
  said.reset();
  EXPECT_EQ(leave(), 0ms);
  unfinished = open_between(0s, 5s);
  EXPECT_EQ(leave(), 5s);
}

TEST_F(DepartureTest, WaitsForPodsThatWereBoundBefore) {
  unfinished = open_between(0s, 5s);
  EXPECT_EQ(leave(), 5s + Departure::kQuiet);
  EXPECT_THAT(left, IsEmpty());
}

TEST_F(DepartureTest, RestartsTheQuietTimeWhenAPodArrivesLate) {
  unfinished = open_between(2s, 3s);  // bound before control saw the condition
  EXPECT_EQ(leave(), 3s + Departure::kQuiet);
}

TEST_F(DepartureTest, WaitsForAPodThatNeverStartsOnlyALimitedTime) {
  unfinished = open_between(0s, 1h);
  EXPECT_EQ(leave(), Departure::kMost);
  EXPECT_THAT(left, ElementsAre("pod s/p"));
}

TEST_F(DepartureTest, WaitsForAnAbsentServerOnlyAShortTime) {
  said.reset();
  EXPECT_EQ(leave(), Departure::kUnsaid);
  EXPECT_THAT(left, IsEmpty());
  unfinished = open_between(0s, 6s);  // pods that were bound before still start
  EXPECT_EQ(leave(), 6s);
  unfinished = open_between(0s, 1h);
  EXPECT_EQ(leave(), Departure::kMost);
  EXPECT_THAT(left, SizeIs(1));
}

TEST_F(DepartureTest, WaitsTheFullQuietTimeWhenTheConditionIsAcceptedLate) {
  said = 2900ms;
  EXPECT_EQ(leave(), 2900ms + Departure::kQuiet);
}

TEST_F(DepartureTest, EndsWellBeforeTheKubeletKillsTheAgent) {
  constexpr auto kCall = 10s;   // a call of the API client that is in flight when the agent ends
  constexpr auto kGrace = 30s;  // deploy/agent.yaml
  EXPECT_LT(Departure::kMost + kCall + 5s, kGrace);
}

}  // namespace
}  // namespace carve::node
