#include "lease/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lease/memory_account.h"
#include "lease/observe.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kKey = 11;
constexpr std::uint64_t kStream = 5;

struct World {
  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
  Gate gate;
  Lane lane;
  std::uint64_t now = 1'000 * kMs;

  World() {
    gate.attach(grant.get(), account.get(), &entry());
    grant->rate_ppm.raw = 300'000;
    beat();
  }
  abi::AccountEntry& entry() { return account->entries[0]; }
  void beat() { grant->heartbeat_ns.raw = now; }
  void allow(abi::LeaseMode mode, std::uint64_t end, std::uint32_t credit_us) {
    grant->end_ns.raw = end;
    grant->credit_us.raw = credit_us;
    grant->lease.raw = static_cast<std::uint32_t>(mode) | ((grant->lease.raw >> 2) + 1) << 2;
  }
  Passage enter(std::uint64_t key = kKey, std::uint64_t stream = kStream) {
    return gate.enter(lane, key, stream, [this] { return now; });
  }
};

TEST(Gate, NothingPassesWithoutALease) {
  World w;
  w.allow(abi::LeaseMode::kBlocked, 0, 0);
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitGrant);
  EXPECT_EQ(w.entry().inflight_ns.raw, 0U) << "work that was not launched is not in flight";
  EXPECT_TRUE(w.gate.starts_waiting());
  EXPECT_EQ(w.entry().want.raw, 1U);
  EXPECT_FALSE(w.gate.starts_waiting()) << "one notification is enough";
  w.gate.left_waiting();
  EXPECT_EQ(w.entry().want.raw, 1U);
  w.gate.left_waiting();
  EXPECT_EQ(w.entry().want.raw, 0U);
}

TEST(Gate, ARevokedSliceIsRefused) {
  World w;
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  w.grant->revoked.raw = 1;
  EXPECT_EQ(w.enter().verdict, Verdict::kRefuse);
}

TEST(Gate, WorkThatCouldOnlyBeginAfterTheLeaseWaits) {
  World w;
  w.gate.costs().learn(kKey, 3 * kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 5 * kMs, 50'000);
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);  // ends at 3 ms
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);  // begins at 3 ms and ends after the lease, which one operation may
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitGrant);
}

TEST(Gate, TheCreditBoundsWorkInFlight) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  int passed = 0;
  while (w.enter().verdict == Verdict::kGo && passed < 100) ++passed;
  EXPECT_EQ(passed, 5);  // four before the fifth
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion);
}

TEST(Gate, CompletionsMakeRoomAndAreMeasured) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 1'000);
  const Passage first = w.enter();
  EXPECT_TRUE(first.begin_marker);
  Segment segment;
  ASSERT_TRUE(w.gate.leave(w.lane, first, &segment)) << "1 ms of estimated work closes a segment";
  w.enter();
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion);
  w.now += 2 * kMs;
  w.gate.completed(segment, 0, 2 * kMs, w.now);
  EXPECT_EQ(w.entry().busy_ns.raw, 2 * kMs);
  EXPECT_GT(w.gate.costs().estimate_ns(kKey), kMs) << "it took twice as long as estimated";
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);
}

TEST(Gate, TheLastCompletionClearsBusyAndNotifiesTheArbiter) {
  World w;
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  const Passage passage = w.enter();
  EXPECT_EQ(w.entry().busy.raw, 1U);
  Segment segment;
  ASSERT_TRUE(w.gate.leave(w.lane, passage, &segment));
  EXPECT_TRUE(w.gate.completed(segment, 0, kMs, w.now + kMs));
  EXPECT_EQ(w.entry().busy.raw, 0U);
  EXPECT_EQ(w.entry().inflight_ns.raw, 0U);
}

TEST(Gate, OverlappingStreamsAreCountedOnce) {
  World w;
  Segment segment;
  w.entry().inflight_ns.raw = 10 * kMs;
  w.gate.completed(segment, 10 * kMs, 30 * kMs, w.now);
  w.gate.completed(segment, 20 * kMs, 40 * kMs, w.now);
  w.gate.completed(segment, 25 * kMs, 35 * kMs, w.now);
  EXPECT_EQ(w.entry().busy_ns.raw, 30 * kMs);
}

// A short copy that ends during a long kernel on another stream must not hide the kernel's time before the copy.
TEST(Gate, ASegmentWithinAnotherHidesNothing) {
  World w;
  Segment segment;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    w.gate.completed(segment, i * kMs + 950'000, i * kMs + 960'000, w.now);
    w.gate.completed(segment, i * kMs, i * kMs + 999'000, w.now);
  }
  EXPECT_EQ(w.entry().busy_ns.raw, 1000 * 999'000ULL);
}

TEST(Gate, UnmeasuredWorkIsNotFree) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  for (int i = 0; i < 1000; ++i) {
    Segment segment;
    const Passage passage = w.enter();
    w.lane.segment_target_ns = 1;
    ASSERT_TRUE(w.gate.leave(w.lane, passage, &segment));
    w.now += kMs;
    w.gate.abandoned(segment, segment.estimate_ns, w.now);
  }
  EXPECT_GE(w.entry().busy_ns.raw, 990 * kMs);
}

TEST(Gate, AnotherStreamClosesTheSegment) {
  World w;
  w.gate.costs().learn(kKey, 1000);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  Segment none;
  EXPECT_FALSE(w.gate.leave(w.lane, w.enter(), &none));
  const Passage other = w.enter(kKey, kStream + 1);
  EXPECT_TRUE(other.close);
  EXPECT_EQ(other.closed.stream, kStream);
  EXPECT_EQ(other.closed.operations, 1U);
  EXPECT_TRUE(other.begin_marker);
}

TEST(Gate, TheHelperClosesASegmentLeftOpen) {
  World w;
  w.gate.costs().learn(kKey, 1000);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  Segment segment;
  EXPECT_FALSE(w.gate.leave(w.lane, w.enter(), &segment));
  EXPECT_FALSE(w.gate.close_stale(w.lane, w.now, &segment)) << "work was added since the last check";
  ASSERT_TRUE(w.gate.close_stale(w.lane, w.now, &segment));
  EXPECT_EQ(segment.estimate_ns, 1000U);
  EXPECT_EQ(w.entry().inflight_ns.raw, 1000U) << "unused credit is not in flight";
  w.gate.completed(segment, 0, 1000, w.now);
  EXPECT_EQ(w.entry().busy.raw, 0U);
}

TEST(Gate, ASegmentThatIsFullLeavesNoCreditInFlight) {
  World w;
  w.gate.costs().learn(kKey, kMs * 3 / 10);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  Segment segment;
  int launches = 1;
  while (!w.gate.leave(w.lane, w.enter(), &segment)) ++launches;
  EXPECT_EQ(launches, 4) << "1.2 ms, of which the last launch reserved more than it needed";
  w.gate.completed(segment, 0, segment.estimate_ns, w.now);
  EXPECT_EQ(w.entry().inflight_ns.raw, 0U);
  EXPECT_EQ(w.entry().busy.raw, 0U) << "the program may launch nothing for a long time";
}

TEST(Gate, ARefusedLaunchGivesItsCreditBack) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  const Passage passage = w.enter();
  w.gate.withdraw(w.lane, passage);
  w.gate.give_credit_back(w.lane, w.now);
  EXPECT_EQ(w.entry().inflight_ns.raw, 0U);
  EXPECT_EQ(w.entry().busy.raw, 0U);
}

TEST(Gate, AWaitVerdictSaysWhatToWaitForAndHowLong) {
  World w;
  const GateTuning tuning;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kBlocked, 0, 0);
  Passage passage = w.enter();
  EXPECT_EQ(passage.wait_ns, tuning.longest_wait) << "until the arbiter decides";
  EXPECT_EQ(passage.futex_value, w.grant->lease.raw);
  w.allow(abi::LeaseMode::kLease, w.now, 4'000);
  passage = w.enter();
  EXPECT_EQ(passage.verdict, Verdict::kWaitGrant) << "the lease ends at this moment";
  EXPECT_EQ(passage.wait_ns, tuning.marker_every) << "it stays in the page until the arbiter decides";
  w.allow(abi::LeaseMode::kLease, w.now + 1, 4'000);
  EXPECT_EQ(w.enter().verdict, Verdict::kGo) << "it ends after this moment";
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 999);
  passage = w.enter();
  EXPECT_EQ(passage.verdict, Verdict::kWaitCompletion) << "1 ms is in flight, less is allowed";
  EXPECT_EQ(passage.wait_ns, tuning.marker_every);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 1'000);
  EXPECT_EQ(w.enter().verdict, Verdict::kGo) << "1 ms is in flight and allowed";
}

TEST(Gate, UnusedCreditIsNotInFlight) {
  World w;
  w.gate.costs().learn(kKey, kMs / 10);
  w.gate.costs().learn(kKey + 1, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 100);
  ASSERT_EQ(w.enter().verdict, Verdict::kGo);
  EXPECT_EQ(w.lane.credit_ns, kMs * 9 / 10);
  EXPECT_EQ(w.enter(kKey + 1).verdict, Verdict::kGo)
      << "0.1 ms of the reserved 1 ms is in flight and allowed";
  EXPECT_EQ(w.entry().inflight_ns.raw, kMs * 11 / 10);
}

TEST(Gate, CreditAndMarkersAreLargerWhenAlone) {
  const GateTuning tuning;
  for (const auto& [mode, chunk] : {std::pair{abi::LeaseMode::kLease, tuning.marker_every},
                                    {abi::LeaseMode::kSolo, tuning.solo_marker_every}}) {
    World w;
    w.gate.costs().learn(kKey, kMs / 10);
    w.allow(mode, w.now + 1000 * kMs, 50'000);
    std::uint64_t launches = 0;
    for (bool closed = false; !closed; ++launches) {
      const Passage passage = w.enter();
      ASSERT_EQ(passage.verdict, Verdict::kGo);
      EXPECT_EQ(passage.begin_marker, launches == 0);
      EXPECT_EQ(w.entry().inflight_ns.raw, chunk) << "reserved for the following work too";
      Segment segment;
      closed = w.gate.leave(w.lane, passage, &segment);
    }
    EXPECT_EQ(launches, chunk / (kMs / 10));
  }
}

/// Completes one segment that took the time `took` on the card. `kinds`: each kind of work and its number of launches.
void measure(World& w, const std::vector<std::pair<std::uint64_t, int>>& kinds, std::uint64_t took) {
  Segment segment;
  bool closed = false;
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 4'000'000);
  for (const auto& [key, times] : kinds) {
    for (int i = 0; i < times; ++i) {
      const Passage passage = w.enter(key);
      ASSERT_EQ(passage.verdict, Verdict::kGo);
      w.lane.segment_target_ns = 1'000'000 * kMs;
      closed = w.gate.leave(w.lane, passage, &segment);
    }
  }
  ASSERT_FALSE(closed);
  (void)w.gate.close_stale(w.lane, w.now, &segment);
  ASSERT_TRUE(w.gate.close_stale(w.lane, w.now, &segment));
  w.now += took;
  const std::uint64_t begin = w.entry().busy_ns.raw * 3 + kMs;  // after all earlier segments
  w.gate.completed(segment, begin, begin + took, w.now);
}

TEST(Gate, UnknownWorkGetsTheTimeThatKnownWorkLeaves) {
  World w;
  w.gate.costs().learn(1, kMs);
  measure(w, {{1, 2}, {2, 1}, {3, 2}}, 5 * kMs);
  EXPECT_EQ(w.gate.costs().estimate_ns(2), kMs) << "3 ms are left of 5, for three launches";
  EXPECT_EQ(w.gate.costs().estimate_ns(3), kMs);
  EXPECT_EQ(w.gate.costs().estimate_ns(1), kMs) << "its part is unknown";
  EXPECT_EQ(w.entry().max_op_us.raw, 1'000U);
  measure(w, {{1, 8}, {4, 1}}, 4 * kMs);
  EXPECT_EQ(w.gate.costs().estimate_ns(4), kMs / 2) << "an eighth of the total if nothing is left";
}

TEST(Gate, KnownWorkLearnsInProportion) {
  World w;
  w.gate.costs().learn(1, kMs);
  w.gate.costs().learn(2, 2 * kMs);
  measure(w, {{1, 1}, {2, 1}}, 6 * kMs);
  EXPECT_EQ(w.gate.costs().estimate_ns(1), kMs * 5 / 4) << "twice as long as estimated, weighted by a quarter";
  EXPECT_EQ(w.gate.costs().estimate_ns(2), kMs * 5 / 2);
  EXPECT_EQ(w.entry().max_op_us.raw, 2'500U);
}

// Many segments are in flight when the first one shows that the estimate is wrong. Each corrects it once.
TEST(Gate, SegmentsLaunchedTogetherCorrectAnErrorOnce) {
  World w;
  w.gate.costs().learn(kKey, 5 * kMs);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 4'000'000);
  std::vector<Segment> segments(50);
  for (Segment& segment : segments) {
    const Passage passage = w.enter();
    w.lane.segment_target_ns = 1;
    ASSERT_TRUE(w.gate.leave(w.lane, passage, &segment));
  }
  for (const Segment& segment : segments) {
    w.now += kMs / 10;
    w.gate.completed(segment, w.now - kMs / 10, w.now, w.now);
  }
  EXPECT_NEAR(static_cast<double>(w.gate.costs().estimate_ns(kKey)), 0.1 * kMs, 100.0);
}

TEST(Gate, ASegmentRemembersFourKindsOfWorkAndCountsAll) {
  World w;
  for (std::uint64_t key = 1; key <= 6; ++key) w.gate.costs().learn(key, 1'000);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  Segment segment;
  for (std::uint64_t key = 1; key <= 6; ++key) {
    for (std::uint64_t i = 0; i < key; ++i) EXPECT_FALSE(w.gate.leave(w.lane, w.enter(key), &segment));
  }
  (void)w.gate.close_stale(w.lane, w.now, &segment);
  ASSERT_TRUE(w.gate.close_stale(w.lane, w.now, &segment));
  EXPECT_EQ(segment.distinct, Segment::kKeys);
  EXPECT_EQ(segment.operations, 21U);
  EXPECT_EQ(segment.estimate_ns, 21'000U);
  for (std::uint32_t i = 0; i < Segment::kKeys; ++i) {
    EXPECT_EQ(segment.keys[i], i + 1);
    EXPECT_EQ(segment.counts[i], i + 1);
  }
}

TEST(Gate, UnmeasuredWorkCountsItsExpectedTimeUpToTheElapsedTime) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  const auto abandon_after = [&](std::uint64_t passed) {
    Segment segment;
    const Passage passage = w.enter();
    w.lane.segment_target_ns = 1;
    EXPECT_TRUE(w.gate.leave(w.lane, passage, &segment));
    const std::uint64_t before = w.entry().busy_ns.raw;
    w.now += passed;
    w.entry().anchor_ns.raw = w.now - passed;
    w.gate.abandoned(segment, segment.estimate_ns, w.now);
    return w.entry().busy_ns.raw - before;
  };
  EXPECT_EQ(abandon_after(3 * kMs), kMs);
  EXPECT_EQ(abandon_after(kMs / 4), kMs / 4);
  EXPECT_EQ(w.entry().anchor_ns.raw, w.now);
}

TEST(Gate, TheFastPathMatchesTheSlowPath) {
  World w;
  w.gate.costs().learn(kKey, kMs / 10);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 50'000);
  std::uint64_t estimate = 0;
  EXPECT_FALSE(w.gate.enter_fast(w.lane, kKey, kStream, &estimate)) << "nothing is open yet";
  Segment segment;
  EXPECT_FALSE(w.gate.leave(w.lane, w.enter(), &segment));
  std::uint64_t more = 0;
  for (; w.gate.enter_fast(w.lane, kKey, kStream, &estimate); ++more) {
    EXPECT_EQ(estimate, kMs / 10);
    if (!Gate::leave_fast(w.lane, kKey, estimate)) break;
  }
  EXPECT_EQ(more, 8U) << "the tenth one fills the segment, and leave() records its end marker";
  Passage last;
  last.key = kKey;
  last.estimate_ns = estimate;
  ASSERT_TRUE(w.gate.leave(w.lane, last, &segment));
  EXPECT_EQ(segment.operations, 10U);
  EXPECT_EQ(segment.counts[0], 10U);
  EXPECT_EQ(segment.estimate_ns, kMs);
  EXPECT_EQ(w.lane.credit_ns, 0U);
}

TEST(Gate, AnyDifferenceLeavesTheFastPath) {
  const auto taken = [](const std::function<void(World&)>& change, std::uint64_t key = kKey,
                        std::uint64_t stream = kStream) {
    World w;
    w.gate.costs().learn(kKey, kMs / 10);
    w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 50'000);
    Segment segment;
    EXPECT_FALSE(w.gate.leave(w.lane, w.enter(), &segment));
    change(w);
    std::uint64_t estimate = 0;
    const std::uint64_t credit = w.lane.credit_ns;
    const bool fast = w.gate.enter_fast(w.lane, key, stream, &estimate);
    EXPECT_EQ(w.lane.credit_ns, fast ? credit - estimate : credit);
    return fast && Gate::leave_fast(w.lane, key, estimate);
  };
  EXPECT_TRUE(taken([](World&) {}));
  EXPECT_TRUE(taken([](World& w) { w.lane.credit_ns = kMs / 10; })) << "exactly enough";
  EXPECT_FALSE(taken([](World& w) { w.lane.credit_ns = kMs / 10 - 1; }));
  EXPECT_FALSE(taken([](World& w) { w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000); })) << "another grant";
  EXPECT_FALSE(taken([](World& w) { w.lane.segment.open = false; }));
  EXPECT_FALSE(taken([](World&) {}, kKey, kStream + 1));
  EXPECT_FALSE(taken([](World& w) { w.gate.costs().learn(kKey + 1, kMs / 10); }, kKey + 1)) << "another kind of work";
  EXPECT_FALSE(taken([](World& w) { w.lane.segment.distinct = 0; }));
  EXPECT_FALSE(taken([](World& w) { w.lane.segment_target_ns = 2 * (kMs / 10); })) << "it fills the segment";
  EXPECT_TRUE(taken([](World& w) { w.lane.segment_target_ns = 2 * (kMs / 10) + 1; }));
}

TEST(Gate, TheLocalBucketHoldsFiftyMillisecondsAtTheRate) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kBlocked, 0, 0);
  const auto launches = [&] {
    int passed = 0;
    for (; w.enter().verdict == Verdict::kGo; ++passed) w.gate.give_credit_back(w.lane, w.now);
    return passed;
  };
  w.now += abi::kHeartbeatMissedNs;
  EXPECT_EQ(launches(), 0) << "not silent for longer than allowed";
  EXPECT_FALSE(w.gate.on_its_own());
  w.now += 1;
  EXPECT_EQ(launches(), 15) << "50 ms at 30 %";
  w.now += 20 * kMs;
  EXPECT_EQ(launches(), 6);
  w.now += 60'000 * kMs;
  EXPECT_EQ(launches(), 15) << "no more, regardless of the silence";
}

TEST(Gate, WithASilentArbiterTheLastRateApplies) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kBlocked, 0, 0);  // the last grant does not matter
  w.now += abi::kHeartbeatMissedNs + kMs;
  const std::uint64_t from = w.now;
  std::uint64_t passed = 0;
  for (; w.now < from + 10'000 * kMs; w.now += kMs) {
    Segment segment;
    const Passage passage = w.enter();
    if (passage.verdict != Verdict::kGo) continue;
    ++passed;
    if (w.gate.leave(w.lane, passage, &segment)) w.gate.completed(segment, w.now, w.now + kMs, w.now + kMs);
  }
  EXPECT_TRUE(w.gate.on_its_own());
  EXPECT_NEAR(static_cast<double>(passed), 3000, 60) << "30 % of ten seconds, in launches of 1 ms";
  w.beat();
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitGrant) << "the arbiter is back and had granted nothing";
}

/// Gives another process of the slice, in account entry 1, work in flight.
void other_has_in_flight(World& w, std::uint64_t ns, std::uint64_t since) {
  w.grant->high_entry.raw = 2;
  w.account->entries[1].inflight_ns.raw = ns;
  w.account->entries[1].anchor_ns.raw = since;
  w.account->entries[1].busy.raw = ns != 0 ? 1 : 0;
}

TEST(Gate, TheCreditIsSharedByAllProcessesOfTheSlice) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  other_has_in_flight(w, 4 * kMs, w.now);
  EXPECT_EQ(w.enter().verdict, Verdict::kGo) << "4 ms are before it, and allowed";
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion);
  EXPECT_EQ(w.entry().inflight_ns.raw, kMs) << "work that was not launched is not in flight";
  other_has_in_flight(w, 0, w.now);
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);
  World full;
  full.gate.costs().learn(kKey, kMs);
  full.allow(abi::LeaseMode::kLease, full.now + 1000 * kMs, 4'000);
  other_has_in_flight(full, 4 * kMs + 1, full.now);
  EXPECT_EQ(full.enter().verdict, Verdict::kWaitCompletion);
  full.allow(abi::LeaseMode::kLease, full.now + 4 * kMs, 4'000);
  EXPECT_EQ(full.enter().verdict, Verdict::kWaitGrant) << "it could only begin after the lease";
}

TEST(Gate, ElapsedTimeCountsAsWorkDoneUpToTheNextMarker) {
  const auto verdict = [](std::uint64_t in_flight, std::uint64_t passed) {
    World w;
    w.gate.costs().learn(kKey, kMs);
    w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
    other_has_in_flight(w, in_flight, w.now - passed);
    return w.enter().verdict;
  };
  EXPECT_EQ(verdict(5 * kMs, 0), Verdict::kWaitCompletion);
  EXPECT_EQ(verdict(5 * kMs, kMs), Verdict::kGo);
  EXPECT_EQ(verdict(6 * kMs, 2 * kMs), Verdict::kGo) << "a marker may be seen this late";
  EXPECT_EQ(verdict(6 * kMs, 2 * kMs + 1), Verdict::kWaitCompletion) << "not later: no work is known to be done";
  EXPECT_EQ(verdict(kMs, 5 * kMs), Verdict::kGo) << "4 ms late, expected to take as long again";
  EXPECT_EQ(verdict(kMs, 5 * kMs + 1), Verdict::kWaitCompletion);
  EXPECT_EQ(verdict(kMs, 41 * kMs), Verdict::kWaitCompletion);
  EXPECT_EQ(verdict(kMs, 41 * kMs + 1), Verdict::kGo) << "it may wait for this launch; 20 ms per process";
}

TEST(Gate, BehindLateWorkOneLaunchGoesAtATime) {
  World w;
  w.gate.costs().learn(kKey, kMs / 50);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  other_has_in_flight(w, kMs, w.now - 60 * kMs);
  ASSERT_EQ(w.enter().verdict, Verdict::kGo);
  EXPECT_EQ(w.entry().inflight_ns.raw, kMs / 50) << "no credit beyond this launch";
  EXPECT_EQ(w.lane.credit_ns, 0U);
  EXPECT_EQ(w.entry().anchor_ns.raw, w.now) << "the next launch waits as long again";
  w.now += 10 * kMs;
  w.beat();
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion);
}

TEST(Gate, ALongOperationIsNotLateBeforeItsExpectedEnd) {
  World w;
  w.gate.costs().learn(kKey, 20 * kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  ASSERT_EQ(w.enter().verdict, Verdict::kGo);
  w.now += 15 * kMs;
  w.beat();
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion) << "5 ms are left";
  w.now += kMs;
  EXPECT_EQ(w.enter().verdict, Verdict::kGo) << "4 ms are left";
}

TEST(Gate, UnknownWorkIsExpectedToTakeWhatAnotherProcessMeasured) {
  const auto cold = [](std::uint32_t longest_us) {
    World w;
    w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
    other_has_in_flight(w, 0, w.now);
    w.account->entries[1].max_op_us.raw = longest_us;
    static_cast<void>(w.enter());
    return w.gate.costs().estimate_ns(kKey + 1);
  };
  EXPECT_EQ(cold(0), CostTable::kColdNs);
  EXPECT_EQ(cold(1'999), CostTable::kColdNs);
  EXPECT_EQ(cold(5'000), 5 * kMs);
  EXPECT_EQ(cold(~0U), CostTable::kColdestNs);
}

TEST(Gate, ReadsNoMoreEntriesThanAPageHas) {
  World w;
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  w.grant->high_entry.raw = ~0U;
  w.account->entries[abi::kAccountEntries - 1].inflight_ns.raw = 5 * kMs;
  w.account->entries[abi::kAccountEntries - 1].anchor_ns.raw = w.now;
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion);
}

// When the slice is alone on the card, a process does not wait for the work in flight of another process of the slice:
// each process has its part of the credit.
TEST(Gate, WhenAloneEachProcessHasItsPartOfTheCredit) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 4'000);
  other_has_in_flight(w, 400 * kMs, w.now);
  int passed = 0;
  while (w.enter(kKey, kStream + static_cast<std::uint64_t>(passed)).verdict == Verdict::kGo && passed < 100) {
    ++passed;
    w.gate.give_credit_back(w.lane, w.now);
  }
  EXPECT_EQ(passed, 3) << "2 ms before the third: half of 4 ms";
}

TEST(Gate, WorkOfTheProcessInTheFirstEntryCounts) {
  World w;
  w.gate.attach(w.grant.get(), w.account.get(), &w.account->entries[1]);
  w.grant->high_entry.raw = 2;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  w.account->entries[0].inflight_ns.raw = 20 * kMs;
  w.account->entries[0].anchor_ns.raw = w.now;
  w.account->entries[0].busy.raw = 1;
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitCompletion);
}

// Processes find an empty card at the same moment, and the work of only one of them fits.
TEST(Gate, OneOfManySimultaneousLaunchesGoes) {
  constexpr std::uint32_t kProcesses = 4;
  auto grant = std::make_unique<abi::GrantPage>();
  auto account = std::make_unique<abi::AccountPage>();
  std::vector<std::unique_ptr<Gate>> gates;
  const std::uint64_t now = 1'000 * kMs;
  grant->heartbeat_ns.raw = now;
  grant->high_entry.raw = kProcesses;
  for (std::uint32_t i = 0; i < kProcesses; ++i) {
    gates.push_back(std::make_unique<Gate>());
    gates.back()->attach(grant.get(), account.get(), &account->entries[i]);
    gates.back()->costs().learn(kKey, 20 * kMs);
  }
  grant->end_ns.raw = now + 1'000 * kMs;
  grant->credit_us.raw = 4'000;
  for (std::uint32_t round = 1; round <= 50; ++round) {
    grant->lease.raw = static_cast<std::uint32_t>(abi::LeaseMode::kLease) | round << 2;
    for (auto& entry : account->entries) entry.inflight_ns.raw = 0;
    std::atomic<std::uint32_t> ready{0}, went{0};
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      threads.emplace_back([&, i] {
        Lane lane;
        for (++ready; ready < kProcesses;) std::this_thread::yield();
        for (int again = 0; again < 1'000 && went == 0; ++again) {
          if (gates[i]->enter(lane, kKey, kStream, [&] { return now; }).verdict == Verdict::kGo) ++went;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    ASSERT_EQ(went, 1U) << "round " << round;
  }
}

TEST(Gate, AnEndWithoutABeginCountsFromTheLastProgress) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  Segment segment;
  ASSERT_TRUE(w.gate.leave(w.lane, w.enter(), &segment));
  w.now += 5 * kMs;
  EXPECT_TRUE(w.gate.ended(segment, w.now));
  EXPECT_EQ(w.entry().busy_ns.raw, 5 * kMs);
  EXPECT_EQ(w.entry().inflight_ns.raw, 0U);
  EXPECT_EQ(w.gate.costs().estimate_ns(kKey), kMs) << "no estimate changes";
}

TEST(Gate, UnknownWorkWithoutAnEndIsExpectedToTakeLong) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  Segment segment;
  segment.estimate_ns = 3 * kMs;
  segment.distinct = 1;
  segment.keys[0] = kKey;
  EXPECT_EQ(w.gate.longest_expected_ns(segment), 3 * kMs);
  segment.distinct = 2;
  segment.keys[1] = kKey + 1;
  EXPECT_EQ(w.gate.longest_expected_ns(segment), CostTable::kColdestNs);
  segment.estimate_ns = 30 * kMs;
  EXPECT_EQ(w.gate.longest_expected_ns(segment), 30 * kMs);
  w.entry().anchor_ns.raw = w.now - 2 * kMs;
  w.entry().inflight_ns.raw = 5 * kMs;
  EXPECT_EQ(w.gate.expected_end_ns(w.now), w.now + 3 * kMs);
  EXPECT_EQ(w.gate.expected_end_ns(w.now + 10 * kMs), w.now + 10 * kMs);
}

TEST(CostTable, DifferentWorkUnderTheSameKeyReplacesTheEstimate) {
  CostTable table;
  table.learn(3, 1'000);
  table.learn(3, 2'001);
  EXPECT_EQ(table.estimate_ns(3), 1'250U) << "not more than twice as long: a quarter of it";
  table.learn(3, 2'502);
  EXPECT_EQ(table.estimate_ns(3), 2'502U);
  table.learn(3, 2);
  EXPECT_EQ(table.estimate_ns(3), 1'877U) << "a quarter at a time";
}

TEST(CostTable, ColdWorkIsAssumedLongUntilTheFirstMeasurement) {
  CostTable table;
  EXPECT_EQ(table.estimate_ns(3), CostTable::kColdNs);
  table.learn(3, 500);
  EXPECT_EQ(table.estimate_ns(3), 500U);
  table.learn(3, 900);
  EXPECT_EQ(table.estimate_ns(3), 600U);
  table.forget(3);
  EXPECT_FALSE(table.knows(3));
}

TEST(CostTable, AcceptsAnyDurationAndNeverEstimatesZero) {
  CostTable table;
  table.learn(3, 0);
  EXPECT_EQ(table.estimate_ns(3), 1U);
  table.learn(4, 1);
  EXPECT_EQ(table.estimate_ns(4), 1U);
  const std::uint64_t most = (1ULL << 40) - 1;
  table.learn(5, most);
  EXPECT_EQ(table.estimate_ns(5), most);
  table.learn(6, most + 1);
  EXPECT_EQ(table.estimate_ns(6), most) << "at most 18 minutes";
  EXPECT_TRUE(table.knows(6));
  table.forget(7);
  EXPECT_TRUE(table.knows(6)) << "the entry of another key";
}

TEST(CostTable, AKeyThatEvictsAnotherIsNotConfusedWithIt) {
  CostTable table;
  std::size_t known = 0;
  for (std::uint64_t key = 1; key <= 4'000; ++key) {
    EXPECT_FALSE(table.knows(key));
    table.learn(key, key);
    EXPECT_EQ(table.estimate_ns(key), key);
  }
  for (std::uint64_t key = 1; key <= 4'000; ++key) {
    known += table.knows(key) ? 1 : 0;
    EXPECT_EQ(table.estimate_ns(key), table.knows(key) ? key : CostTable::kColdNs);
  }
  EXPECT_GT(known, CostTable::kEntries * 8 / 10) << "nearly every entry is used";
  EXPECT_LE(known, CostTable::kEntries);
}

// Several threads of one process use one page concurrently; the thread sanitizer checks them.
TEST(Gate, ThreadsOnOneMappingLeaveNothingInFlight) {
  World w;
  w.gate.costs().learn(kKey, kMs / 10);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 4'000'000);
  std::atomic<std::uint64_t> clock = w.now;
  std::mutex queue;  // one thread at a time reports ended work, as in the library, which holds its queue's lock
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Lane lane;
      for (int i = 0; i < 5000; ++i) {
        const Passage p = w.gate.enter(lane, kKey, t + 1, [&] { return clock.load(); });
        Segment segment;
        if (p.verdict != Verdict::kGo || !w.gate.leave(lane, p, &segment)) continue;
        const std::lock_guard lock(queue);
        w.gate.abandoned(segment, segment.estimate_ns, ++clock);
      }
      Segment rest;
      w.gate.close_stale(lane, clock, &rest);
      if (!w.gate.close_stale(lane, clock, &rest)) return;
      const std::lock_guard lock(queue);
      w.gate.abandoned(rest, rest.estimate_ns, ++clock);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(w.entry().inflight_ns.raw, 0U);
  EXPECT_EQ(w.entry().busy.raw, 0U);
}

/// Both pages in concurrent use: one thread acts as the arbiter, and processes (each with an account entry and a gate)
/// of two threads launch and allocate until the slice is revoked.
class Both {
 public:
  static constexpr std::uint64_t kLargestLimit = 128 << 20;
  static constexpr std::uint32_t kProcesses = 3;

  Both() {
    grant->rate_ppm.raw = 300'000;
    grant->memory_limit.raw = kLargestLimit;
    grant->high_entry.raw = kProcesses;
    grant->heartbeat_ns.raw = clock;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      gates[i].attach(grant.get(), account.get(), &account->entries[i]);
      gates[i].costs().learn(kKey, kMs / 10);
    }
  }

  /// Acts as arbiter/ does: reads all account entries, then writes the words of a grant, the lease word last.
  void arbiter(int rounds) {
    std::uint64_t last = clock;
    for (int round = 1; round <= rounds; ++round) {
      const std::uint64_t now = clock += kMs / 2;
      const Observation seen = observe(*account, kProcesses, last, now);
      last = now;
      impossible += seen.inflight_ns > kMostInflightNs || seen.edge_ns > now ? 1 : 0;
      wanted += seen.want ? 1 : 0;
      grant->heartbeat_ns.store_relaxed(now);
      grant->rate_ppm.store_relaxed(300'000);
      grant->memory_limit.store_relaxed(round % 3 == 0 ? kLargestLimit / 2 : kLargestLimit);
      grant->overhead_bytes.store_relaxed(static_cast<std::uint64_t>(round % 5) << 20);
      grant->end_ns.store_relaxed(now + 2 * kMs);
      grant->credit_us.store_relaxed(2'000);
      constexpr abi::LeaseMode kModes[] = {abi::LeaseMode::kLease, abi::LeaseMode::kBlocked, abi::LeaseMode::kSolo};
      const auto epoch = static_cast<std::uint32_t>(round);
      grant->lease.store_release(static_cast<std::uint32_t>(kModes[round % 3]) | epoch << 2);
      std::this_thread::yield();
    }
    grant->lease.store_release(static_cast<std::uint32_t>(abi::LeaseMode::kBlocked));
    grant->revoked.store_relaxed(1);
  }

  void client(std::uint32_t process, std::uint64_t stream) {
    Gate& gate = gates[process];
    Lane lane;
    Segment segment;
    for (bool waits = false, refused = false; !refused;) {
      allocate(account->entries[process]);
      const Passage p = gate.enter(lane, kKey, stream, [&] { return clock.load(); });
      refused = p.verdict == Verdict::kRefuse;
      const bool waited = waits;
      waits = p.verdict == Verdict::kWaitGrant;
      if (waits && !waited) static_cast<void>(gate.starts_waiting());
      if (waited && !waits) gate.left_waiting();
      if (p.verdict == Verdict::kGo) {
        ++launches;
        if (gate.leave(lane, p, &segment)) abandon(process, segment);
      } else {
        std::this_thread::yield();
      }
    }
    gate.close_stale(lane, clock, &segment);
    if (gate.close_stale(lane, clock, &segment)) abandon(process, segment);
    gate.give_credit_back(lane, clock);
  }

  std::unique_ptr<abi::GrantPage> grant = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account = std::make_unique<abi::AccountPage>();
  Gate gates[kProcesses];
  std::atomic<std::uint64_t> clock{1'000 * kMs};
  std::atomic<std::uint64_t> launches{0}, granted{0}, most_granted{0}, refusals{0};
  std::uint64_t impossible = 0, wanted = 0;  // used only by the arbiter's thread

 private:
  void abandon(std::uint32_t process, const Segment& segment) {
    const std::lock_guard lock(queues[process]);
    gates[process].abandoned(segment, segment.estimate_ns, clock);
  }

  void allocate(abi::AccountEntry& entry) {
    constexpr std::uint64_t kBytes = 40 << 20;
    MemoryAccount memory(*grant, *account, entry);
    if (!memory.reserve(kBytes)) {
      ++refusals;
      return;
    }
    const std::uint64_t now = granted += kBytes;
    for (std::uint64_t most = most_granted; most < now && !most_granted.compare_exchange_weak(most, now);) {
    }
    granted -= kBytes;
    entry.used_bytes.fetch_sub(kBytes);
  }

  std::mutex queues[kProcesses];
};

// Tests the whole protocol of the pages, including the arbiter's side, under the thread sanitizer.
TEST(Gate, AnArbiterAndItsClientsOnTheSamePages) {
  Both both;
  std::vector<std::thread> clients;
  for (std::uint32_t process = 0; process < Both::kProcesses; ++process) {
    for (std::uint64_t stream = 1; stream <= 2; ++stream)
      clients.emplace_back([&both, process, stream] { both.client(process, stream); });
  }
  std::thread arbiter([&both] { both.arbiter(2'000); });
  arbiter.join();
  for (auto& client : clients) client.join();
  EXPECT_EQ(both.impossible, 0U);
  EXPECT_GT(both.launches, 0U);
  EXPECT_GT(both.wanted, 0U);
  EXPECT_GT(both.most_granted, 0U);
  EXPECT_LE(both.most_granted, Both::kLargestLimit);
  for (std::uint32_t i = 0; i < Both::kProcesses; ++i) {
    EXPECT_EQ(both.account->entries[i].inflight_ns.raw, 0U) << i;
    EXPECT_EQ(both.account->entries[i].busy.raw, 0U) << i;
    EXPECT_EQ(both.account->entries[i].want.raw, 0U) << i;
    EXPECT_EQ(both.account->entries[i].used_bytes.raw, 0U) << i;
  }
}

}  // namespace
}  // namespace carve::lease
