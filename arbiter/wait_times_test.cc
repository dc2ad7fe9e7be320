#include "arbiter/wait_times.h"

#include <gtest/gtest.h>

namespace carve::arbiter {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;

class Slice {
 public:
  void at(std::uint64_t now, abi::LeaseMode mode, bool wants, bool capped = false) {
    lease::Grant grant;
    grant.mode = mode;
    times_.look(now, grant, wants, capped);
  }
  [[nodiscard]] abi::ControlCounters counters() const {
    abi::ControlCounters counters = {};
    times_.describe(&counters);
    return counters;
  }

 private:
  WaitTimes times_;
};

TEST(WaitTimes, AWaitLastsFromTheFirstRefusalToTheLease) {
  Slice slice;
  slice.at(1 * kMs, abi::LeaseMode::kBlocked, false);
  slice.at(2 * kMs, abi::LeaseMode::kBlocked, true);
  slice.at(5 * kMs, abi::LeaseMode::kBlocked, true);
  EXPECT_EQ(slice.counters().waited_ns, 0U) << "it has not ended";
  slice.at(14 * kMs, abi::LeaseMode::kLease, true);
  slice.at(26 * kMs, abi::LeaseMode::kBlocked, false);
  const auto counters = slice.counters();
  EXPECT_EQ(counters.waited_ns, 12 * kMs);
  EXPECT_EQ(counters.waits[3], 1U) << "10 to 100 ms";
  EXPECT_EQ(counters.capped_ns, 0U);
}

TEST(WaitTimes, ALeaseThatIsGivenInTheSameStepIsAWaitOfNothing) {
  Slice slice;
  slice.at(1 * kMs, abi::LeaseMode::kBlocked, false);
  slice.at(2 * kMs, abi::LeaseMode::kLease, true);
  slice.at(9 * kMs, abi::LeaseMode::kLease, true);
  EXPECT_EQ(slice.counters().waits[0], 1U);
  EXPECT_EQ(slice.counters().waited_ns, 0U);
}

TEST(WaitTimes, ALaunchThatGivesUpEndsTheWait) {
  Slice slice;
  slice.at(1 * kMs, abi::LeaseMode::kBlocked, true);
  slice.at(1 * kMs + 100 * kUs, abi::LeaseMode::kBlocked, false);
  EXPECT_EQ(slice.counters().waits[0], 1U) << "the end of a class belongs to it";
  slice.at(2 * kMs, abi::LeaseMode::kBlocked, true);
  slice.at(2 * kMs + 100 * kUs + 1, abi::LeaseMode::kBlocked, false);
  EXPECT_EQ(slice.counters().waits[1], 1U);
  slice.at(3 * kMs, abi::LeaseMode::kBlocked, true);
  slice.at(60'000 * kMs, abi::LeaseMode::kSolo, true);
  EXPECT_EQ(slice.counters().waits[abi::kWaitCounts - 1], 1U) << "longer than all";
}

TEST(WaitTimes, TimeWithoutTokensCountsOnlyWhileALaunchWaits) {
  Slice slice;
  slice.at(1 * kMs, abi::LeaseMode::kBlocked, false, true);
  slice.at(5 * kMs, abi::LeaseMode::kBlocked, true, true);
  slice.at(7 * kMs, abi::LeaseMode::kBlocked, true, true);
  slice.at(10 * kMs, abi::LeaseMode::kBlocked, true, false);
  slice.at(15 * kMs, abi::LeaseMode::kLease, true, false);
  const auto counters = slice.counters();
  EXPECT_EQ(counters.capped_ns, 5 * kMs) << "from 5 to 10 ms";
  EXPECT_EQ(counters.waited_ns, 10 * kMs);
}

}  // namespace
}  // namespace carve::arbiter
