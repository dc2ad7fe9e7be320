#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "lease/gate.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// The state of an account entry after a segment with an estimate of 1 ms has ended at 70 ms.
struct Ended {
  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
  Gate gate;
  bool notified = false;

  Ended(std::uint64_t in_flight, abi::LeaseMode mode) {
    gate.attach(grant.get(), account.get(), &entry());
    grant->lease.raw = static_cast<std::uint32_t>(mode);
    entry().inflight_ns.raw = in_flight;
    entry().busy.raw = 1;
    entry().anchor_ns.raw = 50 * kMs;
    Segment segment;
    segment.estimate_ns = kMs;
    notified = gate.completed(segment, 10 * kMs, 12 * kMs, 70 * kMs);
  }
  abi::AccountEntry& entry() { return account->entries[0]; }
};

TEST(GateCompletion, TheNextWorkBeginsWhereThePreviousEnded) {
  Ended ended(3 * kMs, abi::LeaseMode::kLease);
  EXPECT_FALSE(ended.notified) << "more is in flight";
  EXPECT_EQ(ended.entry().anchor_ns.raw, 70 * kMs);
  EXPECT_EQ(ended.entry().inflight_ns.raw, 2 * kMs);
  EXPECT_EQ(ended.entry().busy.raw, 1U);
  EXPECT_EQ(ended.entry().busy_ns.raw, 2 * kMs) << "the time that it ran on the card";
}

TEST(GateCompletion, TheLastCompletionNotifiesTheArbiterUnlessTheSliceIsAlone) {
  for (const auto mode : {abi::LeaseMode::kLease, abi::LeaseMode::kBlocked, abi::LeaseMode::kSolo}) {
    Ended ended(kMs, mode);
    EXPECT_EQ(ended.notified, mode != abi::LeaseMode::kSolo);
    EXPECT_EQ(ended.entry().inflight_ns.raw, 0U);
    EXPECT_EQ(ended.entry().busy.raw, 0U);
    EXPECT_EQ(ended.entry().anchor_ns.raw, 70 * kMs);
  }
}

TEST(GateCompletion, AStaleSegmentIsClosedOnce) {
  auto grant = std::make_unique<abi::GrantPage>();
  auto account = std::make_unique<abi::AccountPage>();
  Gate gate;
  gate.attach(grant.get(), account.get(), &account->entries[0]);
  Lane lane;
  Segment out;
  EXPECT_FALSE(gate.close_stale(lane, kMs, &out)) << "nothing is open";
  lane.segment.open = true;
  lane.segment.operations = 1;
  EXPECT_FALSE(gate.close_stale(lane, kMs, &out)) << "work was added since the last check";
  EXPECT_TRUE(lane.segment.open);
  EXPECT_TRUE(gate.close_stale(lane, kMs, &out));
  EXPECT_EQ(out.operations, 1U);
  EXPECT_FALSE(lane.segment.open);
  EXPECT_FALSE(gate.close_stale(lane, kMs, &out));
}

}  // namespace
}  // namespace carve::lease
