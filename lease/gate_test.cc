#include "lease/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
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
    gate.attach(grant.get(), account.get(), &slot());
    grant->rate_ppm.raw = 300'000;
    beat();
  }
  abi::AccountSlot& slot() { return account->slots[0]; }
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
  EXPECT_EQ(w.slot().inflight_ns.raw, 0U) << "what was not launched is not in flight";
  EXPECT_TRUE(w.gate.starts_waiting());
  EXPECT_EQ(w.slot().want.raw, 1U);
  EXPECT_FALSE(w.gate.starts_waiting()) << "the second thread need not ring again";
  w.gate.left_waiting();
  EXPECT_EQ(w.slot().want.raw, 1U);
  w.gate.left_waiting();
  EXPECT_EQ(w.slot().want.raw, 0U);
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
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);  // done at 3 ms
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);  // begins at 3 ms, ends beyond: one operation may
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitGrant);
}

TEST(Gate, TheCreditBoundsWhatIsInFlight) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  int passed = 0;
  while (w.enter().verdict == Verdict::kGo && passed < 100) ++passed;
  EXPECT_EQ(passed, 5);  // four in front of the fifth
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
  EXPECT_EQ(w.slot().busy_ns.raw, 2 * kMs);
  EXPECT_GT(w.gate.costs().estimate_ns(kKey), kMs) << "it took twice as long as was thought";
  EXPECT_EQ(w.enter().verdict, Verdict::kGo);
}

TEST(Gate, BusyFallsWithTheLastCompletionAndTheArbiterIsTold) {
  World w;
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  const Passage passage = w.enter();
  EXPECT_EQ(w.slot().busy.raw, 1U);
  Segment segment;
  ASSERT_TRUE(w.gate.leave(w.lane, passage, &segment));
  EXPECT_TRUE(w.gate.completed(segment, 0, kMs, w.now + kMs));
  EXPECT_EQ(w.slot().busy.raw, 0U);
  EXPECT_EQ(w.slot().inflight_ns.raw, 0U);
}

TEST(Gate, OverlappingStreamsAreCountedOnce) {
  World w;
  Segment segment;
  w.slot().inflight_ns.raw = 10 * kMs;
  w.gate.completed(segment, 10 * kMs, 30 * kMs, w.now);
  w.gate.completed(segment, 20 * kMs, 40 * kMs, w.now);
  w.gate.completed(segment, 25 * kMs, 35 * kMs, w.now);
  EXPECT_EQ(w.slot().busy_ns.raw, 30 * kMs);
}

// A short copy that ends within a long kernel on another stream must not hide what the kernel took before it.
TEST(Gate, ASegmentWithinAnotherHidesNothing) {
  World w;
  Segment segment;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    w.gate.completed(segment, i * kMs + 950'000, i * kMs + 960'000, w.now);
    w.gate.completed(segment, i * kMs, i * kMs + 999'000, w.now);
  }
  EXPECT_EQ(w.slot().busy_ns.raw, 1000 * 999'000ULL);
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
    w.gate.abandoned(segment, w.now);
  }
  EXPECT_GE(w.slot().busy_ns.raw, 990 * kMs);
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

TEST(Gate, TheHelperClosesWhatTheThreadLeft) {
  World w;
  w.gate.costs().learn(kKey, 1000);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 50'000);
  Segment segment;
  EXPECT_FALSE(w.gate.leave(w.lane, w.enter(), &segment));
  EXPECT_FALSE(w.gate.close_stale(w.lane, w.now, &segment)) << "it was added to since the last look";
  ASSERT_TRUE(w.gate.close_stale(w.lane, w.now, &segment));
  EXPECT_EQ(segment.estimate_ns, 1000U);
  EXPECT_EQ(w.slot().inflight_ns.raw, 1000U) << "unused credit is not in flight";
  w.gate.completed(segment, 0, 1000, w.now);
  EXPECT_EQ(w.slot().busy.raw, 0U);
}

TEST(Gate, ARefusedLaunchGivesItsCreditBack) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kLease, w.now + 1000 * kMs, 4'000);
  const Passage passage = w.enter();
  w.gate.withdraw(w.lane, passage);
  w.gate.give_credit_back(w.lane, w.now);
  EXPECT_EQ(w.slot().inflight_ns.raw, 0U);
  EXPECT_EQ(w.slot().busy.raw, 0U);
}

TEST(Gate, WithASilentArbiterTheLastRateGoesOn) {
  World w;
  w.gate.costs().learn(kKey, kMs);
  w.allow(abi::LeaseMode::kBlocked, 0, 0);  // whatever stood there last
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
  EXPECT_EQ(w.enter().verdict, Verdict::kWaitGrant) << "the arbiter is back, and it had not granted";
}

TEST(CostTable, ColdWorkIsTakenForLongAndTheFirstMeasurementStands) {
  CostTable table;
  EXPECT_EQ(table.estimate_ns(3), CostTable::kColdNs);
  table.learn(3, 500);
  EXPECT_EQ(table.estimate_ns(3), 500U);
  table.learn(3, 900);
  EXPECT_EQ(table.estimate_ns(3), 600U);
  table.forget(3);
  EXPECT_FALSE(table.knows(3));
}

// What two threads of a process and the helper do to one page at once; the thread sanitizer watches.
TEST(Gate, ThreadsOnOneMappingLeaveNothingInFlight) {
  World w;
  w.gate.costs().learn(kKey, kMs / 10);
  w.allow(abi::LeaseMode::kSolo, ~0ULL, 4'000'000);
  std::atomic<std::uint64_t> clock = w.now;
  std::mutex queue;  // what ended is reported by one at a time, as the library does under its queue's lock
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Lane lane;
      for (int i = 0; i < 5000; ++i) {
        const Passage p = w.gate.enter(lane, kKey, t + 1, [&] { return clock.load(); });
        Segment segment;
        if (p.verdict != Verdict::kGo || !w.gate.leave(lane, p, &segment)) continue;
        const std::lock_guard lock(queue);
        w.gate.abandoned(segment, ++clock);
      }
      Segment rest;
      w.gate.close_stale(lane, clock, &rest);
      if (!w.gate.close_stale(lane, clock, &rest)) return;
      const std::lock_guard lock(queue);
      w.gate.abandoned(rest, ++clock);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(w.slot().inflight_ns.raw, 0U);
  EXPECT_EQ(w.slot().busy.raw, 0U);
}

/// Both pages with everybody on them at once: a thread that does what the arbiter does, and processes (a slot and a
/// gate each) of two threads that launch and allocate until the slice is revoked.
class Both {
 public:
  static constexpr std::uint64_t kLargestLimit = 128 << 20;
  static constexpr std::uint32_t kProcesses = 3;

  Both() {
    grant->rate_ppm.raw = 300'000;
    grant->memory_limit.raw = kLargestLimit;
    grant->high_slot.raw = kProcesses;
    grant->heartbeat_ns.raw = clock;
    for (std::uint32_t i = 0; i < kProcesses; ++i) {
      gates[i].attach(grant.get(), account.get(), &account->slots[i]);
      gates[i].costs().learn(kKey, kMs / 10);
    }
  }

  /// As src/app/arbiter does it: reads all slots, then writes the words of a grant and the lease word last.
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
      allocate(account->slots[process]);
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
  std::uint64_t impossible = 0, wanted = 0;  // the arbiter's thread's

 private:
  void abandon(std::uint32_t process, const Segment& segment) {
    const std::lock_guard lock(queues[process]);
    gates[process].abandoned(segment, clock);
  }

  void allocate(abi::AccountSlot& slot) {
    constexpr std::uint64_t kBytes = 40 << 20;
    MemoryAccount memory(*grant, *account, slot);
    if (!memory.reserve(kBytes)) {
      ++refusals;
      return;
    }
    const std::uint64_t now = granted += kBytes;
    for (std::uint64_t most = most_granted; most < now && !most_granted.compare_exchange_weak(most, now);) {
    }
    granted -= kBytes;
    memory.release(kBytes);
  }

  std::mutex queues[kProcesses];
};

// The whole protocol of the pages under the thread sanitizer, the arbiter's half too.
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
    EXPECT_EQ(both.account->slots[i].inflight_ns.raw, 0U) << i;
    EXPECT_EQ(both.account->slots[i].busy.raw, 0U) << i;
    EXPECT_EQ(both.account->slots[i].want.raw, 0U) << i;
    EXPECT_EQ(both.account->slots[i].used_bytes.raw, 0U) << i;
  }
}

}  // namespace
}  // namespace carve::lease
