#include "app/agent/compute_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace carve {
namespace {

using std::chrono::milliseconds;

/// A process and what NVML says of it: the mean of the last second. It is frozen when the case says
/// so, for as long as the agent would.
class Bench {
 public:
  /// What it really got, in per cent, over `rounds` of 100 ms in each of which it wants this much.
  double run(double wanted, int rounds) {
    double got = 0;
    for (int i = 0; i < rounds; ++i) {
      const bool still = now_ < thawed_;
      past_.push_back(still ? 0 : wanted);
      if (past_.size() > 10) past_.pop_front();
      got += past_.back();
      double mean = 0;
      for (const double one : past_) mean += one / static_cast<double>(past_.size());
      now_ += milliseconds(100);
      if (const auto used = case_.look(mean, allowed_, now_, {})) {
        ++caught_;
        const double share = std::clamp(1 - allowed_ / *used, 0.0, 0.9);
        case_.frozen(share);
        thawed_ = now_ + milliseconds(static_cast<int>(share * 1000));
      }
    }
    return got / rounds;
  }
  [[nodiscard]] int caught() const { return caught_; }
  explicit Bench(double allowed) : allowed_(allowed) {}

 private:
  double allowed_;
  ComputeCase case_;
  Clock::Time now_{std::chrono::seconds(100)};
  Clock::Time thawed_{};
  std::deque<double> past_;
  int caught_ = 0;
};

TEST(ComputeCase, MuchTooMuchIsCaughtAfterTwoSecondsAndHeldDown) {
  Bench bench(10);
  bench.run(90, 19);
  EXPECT_EQ(bench.caught(), 0);
  bench.run(90, 3);
  EXPECT_EQ(bench.caught(), 1);
  EXPECT_LT(bench.run(90, 300), 10 + 10);
}

TEST(ComputeCase, ALittleTooMuchIsCaughtByItsMeanAndHeldDown) {
  Bench bench(20);  // below the points that one round may be wrong by
  bench.run(42, 98);
  EXPECT_EQ(bench.caught(), 0);
  bench.run(42, 5);
  EXPECT_EQ(bench.caught(), 1);
  EXPECT_LT(bench.run(42, 300), 20 + 10);
}

TEST(ComputeCase, WhatSamplesMayBeWrongByIsNoBreach) {
  Bench bench(20);
  bench.run(29, 1000);
  for (int i = 0; i < 100; ++i) {  // bursts that come to little
    bench.run(60, 5);
    bench.run(5, 15);
  }
  EXPECT_EQ(bench.caught(), 0);
}

TEST(ComputeCase, WhoKeepsToItIsForgiven) {
  Bench bench(20);
  bench.run(90, 50);
  ASSERT_GT(bench.caught(), 0);
  bench.run(20, 60);
  const int before = bench.caught();
  EXPECT_NEAR(bench.run(20, 100), 20, 0.1) << "frozen though it keeps to what it may use";
  EXPECT_EQ(bench.caught(), before);
  bench.run(90, 15);
  EXPECT_EQ(bench.caught(), before) << "it begins anew";
  bench.run(90, 30);
  EXPECT_GT(bench.caught(), before);
}

TEST(ComputeCase, NobodyKnowsWhatHappenedInAGap) {
  ComputeCase one;
  Clock::Time now{std::chrono::seconds(100)};
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(one.look(100, 10, now, {}));
    now += milliseconds(1500);
  }
}

}  // namespace
}  // namespace carve
