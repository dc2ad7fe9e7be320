#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/share/matrix.h"

namespace carve::share {
namespace {

constexpr unsigned kSeconds = 22;  // two windows of 10 s after the two dropped seconds

class EveryScenario : public testing::TestWithParam<Scenario> {};

TEST_P(EveryScenario, StaysWithinItsBoundsInEveryWindow) {
  const std::uint64_t seeds = std::getenv("CARVE_SOAK") != nullptr ? 3 : 1;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Judgement got = judge(GetParam(), kSeconds, seed);
    EXPECT_LE(got.off_1s, GetParam().most_off_1s) << "seed " << seed;
    EXPECT_LE(got.off_10s, GetParam().most_off_10s) << "seed " << seed;
  }
}

std::string test_name(const testing::TestParamInfo<Scenario>& info) {
  std::string name;
  for (const char letter : info.param.name) name += std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Matrix, EveryScenario, testing::ValuesIn(scenarios()), test_name);

class ManyProcesses : public testing::TestWithParam<Scenario> {};

TEST_P(ManyProcesses, ShareTheTimeOfOneSlice) {
  const Judgement got = judge(GetParam(), kSeconds, 1);
  EXPECT_LE(got.off_1s, GetParam().most_off_1s);
  EXPECT_LE(got.off_10s, GetParam().most_off_10s);
  EXPECT_LE(got.most_2s, GetParam().most_capped_2s);
  EXPECT_GE(got.least_process, GetParam().least_process);
}

INSTANTIATE_TEST_SUITE_P(Matrix, ManyProcesses, testing::ValuesIn(process_scenarios()), test_name);

class Unruly : public testing::TestWithParam<Scenario> {};

TEST_P(Unruly, CostOnlyTheirOwnSlice) {
  constexpr unsigned kTimeToRepay = 30;
  const Judgement got = judge(GetParam(), kTimeToRepay, 1);
  EXPECT_LE(got.off_1s, GetParam().most_off_1s);
  EXPECT_LE(got.off_10s, GetParam().most_off_10s);
  EXPECT_LE(got.short_by, GetParam().most_short);
}

INSTANTIATE_TEST_SUITE_P(Matrix, Unruly, testing::ValuesIn(unruly_scenarios()), test_name);

// A loop that waits for short kernels leaves the card idle in its turns. If the neighbour's work filled these pauses,
// the loop would lose most of its share, and switches between processes would cost what the filling gains. Its turns
// are therefore exclusive.
TEST(Shares, AWaitingLoopHasExclusiveTurns) {
  for (const std::uint64_t kernel_ns : {11'000U, 50'000U}) {
    const Waiting alone = waiting_loop(kernel_ns, false, true, 12, 1);
    const Waiting leased = waiting_loop(kernel_ns, true, true, 12, 1);
    const Waiting filled = waiting_loop(kernel_ns, true, false, 12, 1);
    EXPECT_GE(leased.delivered, 0.9 * 0.30 * alone.delivered) << kernel_ns << ": its rate, for its part of the time";
    EXPECT_GE(leased.neighbour, 65) << kernel_ns;
    EXPECT_LT(filled.delivered, leased.delivered / 3) << kernel_ns;
    EXPECT_GT(filled.idle, 10) << kernel_ns << ": filling gains no less than 5 %";
  }
}

// The card itself divides its time between processes, and the neighbour is one of 17. The bench measures that.
TEST(Shares, WithoutControlSixteenProcessesTakeTheCard) {
  for (const Scenario& scenario : process_scenarios()) {
    if (scenario.name != "16 x 20ms") continue;
    EXPECT_LT(judge(scenario, kSeconds, 1, false).mean[1], 10);
    return;
  }
  FAIL() << "no such scenario";
}

TEST(Shares, TenEqualTenantsAreServedEqually) {
  for (const Scenario& scenario : scenarios()) {
    if (!scenario.name.starts_with("ten of 10")) continue;
    EXPECT_GE(judge(scenario, kSeconds, 1).jain, 0.999) << scenario.name;
  }
}

// The bench can fail: without the arbiter the card's own time slices give both slices the same, regardless of their
// shares.
TEST(Shares, WithoutControlThe3070SharesAreMissed) {
  const Judgement got = judge(scenarios().front(), kSeconds, 1, false);
  EXPECT_GT(got.off_1s, 10);
}

TEST(Shares, TheOnlineClassTakesTheCardFromTheOfflineOne) {
  Scenario scenario{"online over offline",
                    {{"online", {50, abi::ShareClass::kBurst, abi::PriorityClass::kOnline}, {500'000}},
                     {"offline", {50, abi::ShareClass::kBurst, abi::PriorityClass::kOffline}, {500'000}}},
                    {100, 0}};
  const Judgement got = judge(scenario, kSeconds, 1);
  EXPECT_GE(got.mean[0], 97);
}

// The offline work in flight runs to its end first: at most the credit of an offline slice and one of its kernels.
TEST(Shares, AnOnlineServiceHardlyNoticesOfflineWork) {
  const Service alone = online_service(0, true, kSeconds, 1);
  for (const std::uint64_t kernel_ns : {100'000U, 500'000U}) {
    const Service beside = online_service(kernel_ns, true, kSeconds, 1);
    EXPECT_LE(beside.p99_ms, 1.10 * alone.p99_ms) << kernel_ns;
    EXPECT_GE(beside.offline, 75) << kernel_ns << ": the requests leave 80";
    EXPECT_LE(beside.longest_pause_ms, 5) << kernel_ns;
    EXPECT_GT(online_service(kernel_ns, false, kSeconds, 1).p99_ms, 1.5 * alone.p99_ms) << "the hardware alone";
  }
}

TEST(Shares, BestEffortGetsOnlyTimeThatTheOthersLeave) {
  Scenario scenario{"best effort with burst 50",
                    {{"guaranteed", {50, abi::ShareClass::kBurst, abi::PriorityClass::kStandard}, {500'000}},
                     {"besteffort", {0, abi::ShareClass::kBestEffort, abi::PriorityClass::kStandard}, {500'000}}},
                    {50, -1}};
  const Judgement both = judge(scenario, kSeconds, 1);
  EXPECT_GE(both.mean[0], 50);
  EXPECT_GT(both.mean[1], 0.5);
  scenario.tenants[0].work.start_ns = 1'000'000'000'000;  // the guaranteed slice sleeps
  EXPECT_GE(judge(scenario, kSeconds, 1).mean[1], 98);
}

}  // namespace
}  // namespace carve::share
