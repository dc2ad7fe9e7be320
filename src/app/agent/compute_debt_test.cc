#include "app/agent/compute_debt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace carve::agent {
namespace {

using std::chrono::milliseconds;

/// A slice and the driver's figure for it: the mean of the last fifth of a second. A slice in debt stays frozen for as
/// long as the agent would freeze it.
class Bench {
 public:
  explicit Bench(double guarantee, bool freezing_helps = true) : guarantee_(guarantee), helps_(freezing_helps) {}

  /// Requests `wanted` percent in each of `rounds` rounds of 100 ms. Returns the mean that the slice got, in percent.
  double run(double wanted, int rounds, const ComputeRound& kind = {}) {
    double got = 0;
    for (int i = 0; i < rounds; ++i) {
      const double now = helps_ && now_ < thawed_ ? 0 : wanted;
      past_.push_back(now);
      if (past_.size() > 2) past_.pop_front();
      got += now;
      ComputeRound round = kind;
      round.guarantee = guarantee_;
      round.used = 0;
      for (const double one : past_) round.used += one / static_cast<double>(past_.size());
      now_ += milliseconds(100);
      const ComputeStep step = debt_.look(round, now_, {});
      if (step == ComputeStep::kNone) continue;
      if (step == ComputeStep::kKill && killed_after_ == 0) killed_after_ = i + 1;
      most_ = std::max(most_, step);
      if (caught_++ == 0) first_ = i + 1;
      if (now_ < thawed_) continue;
      thawed_ = now_ + milliseconds(static_cast<int>(std::clamp(1 - guarantee_ / wanted, 0.0, 0.9) * 1000));
    }
    return got / rounds;
  }
  [[nodiscard]] int caught() const { return caught_; }
  [[nodiscard]] int first() const { return first_; }
  [[nodiscard]] int killed_after() const { return killed_after_; }
  [[nodiscard]] ComputeStep most() const { return most_; }
  [[nodiscard]] bool certain() const { return debt_.certain(); }

 private:
  double guarantee_;
  bool helps_;
  ComputeDebt debt_;
  Clock::Time now_{std::chrono::seconds(100)};
  Clock::Time thawed_{};
  std::deque<double> past_;
  int caught_ = 0, first_ = 0, killed_after_ = 0;
  ComputeStep most_ = ComputeStep::kNone;
};

ComputeRound accounted(double charged, double granted, bool starving, double drained = 0) {
  ComputeRound round;
  round.charged = charged;
  round.granted = granted;
  round.starving = starving;
  round.drained = drained;
  return round;
}

TEST(ComputeDebt, ALargeExcessIsCaughtWithinHalfASecondAndLimited) {
  Bench bench(10);
  bench.run(90, 5, accounted(10, 10, true));
  EXPECT_GT(bench.caught(), 0) << "rounds of 100 ms, without the driver's and the agent's delay";
  EXPECT_LT(bench.run(90, 300, accounted(10, 10, true)), 10 + 12);
  EXPECT_EQ(bench.most(), ComputeStep::kFreeze);
}

/// The slice adds all that it takes to its own busy_ns: its account allows everything, its leases do not.
TEST(ComputeDebt, ASliceThatInflatesItsAccountIsCaughtByItsLeases) {
  Bench bench(10);
  bench.run(50, 30, accounted(100, 0, true));
  EXPECT_GT(bench.first(), 0);
  EXPECT_LE(bench.first(), 8) << "0.2 s of the card at 30 points above the allowed amount and the slack";
}

TEST(ComputeDebt, CardTimeThatNoNeighbourMissesIsAllowedUpToTheAccount) {
  Bench bench(10);
  bench.run(90, 300, accounted(90, 10, false));
  EXPECT_EQ(bench.caught(), 0);
}

TEST(ComputeDebt, ASliceThatFreezingDoesNotStopIsEnded) {
  Bench bench(10, false);
  bench.run(90, 70, accounted(10, 10, true));
  EXPECT_EQ(bench.most(), ComputeStep::kKill);
  EXPECT_LE(bench.killed_after(), 26) << "1.6 s of the card at 70 points above the allowed amount and the slack";
}

TEST(ComputeDebt, ASmallExcessIsCaughtAndLimited) {
  Bench bench(20);
  bench.run(42, 15);
  EXPECT_EQ(bench.caught(), 0);
  bench.run(42, 25);
  EXPECT_GT(bench.caught(), 0);
  EXPECT_LT(bench.run(42, 300), 20 + 10.5);
}

TEST(ComputeDebt, ErrorsOfTheDriversSamplesAreNoBreach) {
  Bench bench(20);
  bench.run(29, 1000);
  for (int i = 0; i < 100; ++i) {  // bursts with a low mean
    bench.run(60, 5);
    bench.run(5, 15);
  }
  EXPECT_EQ(bench.caught(), 0);
}

/// The arbiter's account is current, the driver's is a mean of up to a second. A slice that had the card alone until
/// now gets no debt for that.
TEST(ComputeDebt, TheDriversAccountMayBeASecondLate) {
  ComputeDebt debt;
  Clock::Time now{std::chrono::seconds(100)};
  for (int i = 0; i < 100; ++i) {
    ComputeRound round = accounted(i % 10 < 5 ? 100 : 10, i % 10 < 5 ? 100 : 10, true);
    round.guarantee = 10;
    round.used = i % 10 < 5 ? 100 : std::max(10, 100 - 25 * (i % 10 - 4));
    EXPECT_EQ(debt.look(round, now += milliseconds(250), {}), ComputeStep::kNone) << i;
  }
}

/// A kernel of half a second in a slice of 30 runs past its lease, is charged for it, and waits for its next turn.
TEST(ComputeDebt, AKernelLongerThanItsLeaseIsNoBreach) {
  Bench bench(30);
  for (int i = 0; i < 50; ++i) {
    bench.run(100, 5, accounted(100, 5, true, 95));
    bench.run(0, 12, accounted(0, 0, false));
  }
  EXPECT_EQ(bench.caught(), 0);
}

TEST(ComputeDebt, AnEndlessKernelIsReportedAfterFiveSecondsOfTheCardAndNeverEndsTheSlice) {
  Bench bench(10, false);
  bench.run(100, 55, accounted(100, 0, true, 100));
  EXPECT_EQ(bench.caught(), 0);
  bench.run(100, 300, accounted(100, 0, true, 100));
  EXPECT_GT(bench.caught(), 0);
  EXPECT_EQ(bench.most(), ComputeStep::kFreeze);
  EXPECT_FALSE(bench.certain());
}

TEST(ComputeDebt, AGapAddsNoDebt) {
  ComputeDebt one;
  ComputeRound round = accounted(10, 10, true);
  round.used = 100;
  Clock::Time now{std::chrono::seconds(100)};
  for (int i = 0; i < 100; ++i, now += milliseconds(1500)) EXPECT_EQ(one.look(round, now, {}), ComputeStep::kNone);
}

TEST(ComputeDebt, EarlierOffencesCountOnlyIfTheSliceItselfTakesTooMuch) {
  ComputeDebt honest;
  ComputeRound round = accounted(10, 10, true);
  round.guarantee = round.used = 10;
  Clock::Time now{std::chrono::seconds(100)};
  for (int i = 0; i < 10; ++i, now += milliseconds(250))
    EXPECT_EQ(honest.look(round, now, {}, 2.0), ComputeStep::kNone);
  ComputeDebt again;
  round.used = 90;
  EXPECT_EQ(again.look(round, now, {}, 2.0), ComputeStep::kNone);
  EXPECT_EQ(again.look(round, now += milliseconds(250), {}, 2.0), ComputeStep::kKill);
}

}  // namespace
}  // namespace carve::agent
