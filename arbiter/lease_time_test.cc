#include "arbiter/lease_time.h"

#include <gtest/gtest.h>

namespace carve::arbiter {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// A slice that is observed every 10 ms: the mode in its grant page, and the reports of its processes.
class Slice {
 public:
  void run(std::uint64_t ms, abi::LeaseMode mode, bool busy, std::uint64_t adds_ms = 0) {
    lease::Grant grant;
    grant.mode = mode;
    seen_.busy = busy;
    for (std::uint64_t at = 0; at < ms; at += 10) {
      seen_.busy_ns += adds_ms * kMs;
      time_.look(now_ += 10 * kMs, grant, seen_);
    }
  }
  [[nodiscard]] std::uint64_t granted_ms() const { return time_.granted_ns() / kMs; }
  [[nodiscard]] std::uint64_t drained_ms() const { return time_.drained_ns() / kMs; }

 private:
  std::uint64_t now_ = 1'000 * kMs;
  lease::Observation seen_;
  LeaseTime time_;
};

TEST(LeaseTime, CountsTheTimeUnderALease) {
  Slice slice;
  slice.run(10, abi::LeaseMode::kBlocked, false);
  slice.run(40, abi::LeaseMode::kLease, true, 10);
  slice.run(100, abi::LeaseMode::kBlocked, false);
  EXPECT_EQ(slice.granted_ms(), 40U);
}

TEST(LeaseTime, ALeaseCountsUpToItsEnd) {
  LeaseTime time;
  lease::Grant grant;
  time.look(1'000 * kMs, grant, {});
  grant.mode = abi::LeaseMode::kLease;
  grant.end_ns = 1'012 * kMs;
  lease::Observation busy;
  busy.busy = true;
  time.look(1'020 * kMs, grant, busy);
  EXPECT_EQ(time.granted_ns(), 12 * kMs);
  EXPECT_EQ(time.drained_ns(), 8 * kMs);
}

TEST(LeaseTime, OneLongKernelIsExcusedToItsEnd) {
  Slice slice;
  slice.run(10, abi::LeaseMode::kBlocked, false);
  slice.run(10, abi::LeaseMode::kLease, true);
  slice.run(3000, abi::LeaseMode::kBlocked, true);
  EXPECT_EQ(slice.drained_ms(), 3000U);
  slice.run(1000, abi::LeaseMode::kBlocked, false, 10);
  EXPECT_EQ(slice.drained_ms(), 3010U) << "up to the step at which its end was seen";
}

TEST(LeaseTime, ASliceThatReportsCompletionsWithoutALeaseIsExcusedForHalfASecond) {
  Slice slice;
  slice.run(10, abi::LeaseMode::kBlocked, false);
  slice.run(10, abi::LeaseMode::kLease, true, 10);
  slice.run(3000, abi::LeaseMode::kBlocked, true, 10);
  EXPECT_LE(slice.drained_ms(), 500U);
}

TEST(LeaseTime, WorkThatBeginsWithoutALeaseIsNotExcused) {
  Slice slice;
  slice.run(10, abi::LeaseMode::kBlocked, false);
  slice.run(10, abi::LeaseMode::kLease, false);
  slice.run(100, abi::LeaseMode::kBlocked, false);
  const auto before = slice.drained_ms();
  slice.run(1000, abi::LeaseMode::kBlocked, true);
  EXPECT_EQ(slice.drained_ms(), before);
}

}  // namespace
}  // namespace carve::arbiter
