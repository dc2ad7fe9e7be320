// The gate's decisions on record, see base/testing/decisions.h. The other tests of the gate check rules.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/decisions.h"
#include "lease/gate.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::size_t kLanes = 2;

/// A closed segment whose end marker passes at `end` of the page clock.
struct Pending {
  Segment segment;
  std::uint64_t begin;
  std::uint64_t end;
};

/// A process of the slice, with two threads.
struct Process {
  Gate gate;
  std::array<Lane, kLanes> lanes;
  std::array<bool, kLanes> waits = {};
  std::deque<Pending> pending;
};

/// Some processes of one slice, and an arbiter that changes the slice's grant.
class Slice {
 public:
  Slice(std::uint64_t seed, std::uint32_t processes) : numbers_(seed), processes_(processes) {
    for (std::uint32_t i = 0; i < processes; ++i) processes_[i].gate.attach(grant_.get(), account_.get(), &entry(i));
    grant_->high_entry.raw = processes;
    grant_->rate_ppm.raw = 300'000;
  }

  void play(int steps, Decisions& decisions) {
    for (int i = 0; i < steps; ++i) {
      now_ += numbers_.below(numbers_.one_of(30) ? 40 * kMs : 300 * kUs);
      if (numbers_.one_of(12)) change_grant();
      // The arbiter is silent for a while from time to time.
      if (numbers_.one_of(200)) silent_until_ = now_ + numbers_.below(1'000 * kMs);
      if (now_ >= silent_until_) grant_->heartbeat_ns.raw = now_;
      grant_->revoked.raw = numbers_.one_of(400) ? 1 : 0;
      const auto number = static_cast<std::uint32_t>(numbers_.below(processes_.size()));
      act(number, decisions);
      record(number, decisions);
    }
  }

 private:
  abi::AccountEntry& entry(std::uint32_t process) { return account_->entries[process]; }

  void change_grant() {
    constexpr std::array kModes = {abi::LeaseMode::kBlocked, abi::LeaseMode::kSolo, abi::LeaseMode::kLease,
                                   abi::LeaseMode::kLease};
    grant_->end_ns.raw = now_ + numbers_.below(15 * kMs);
    grant_->credit_us.raw = numbers_.one_of(2) ? 4'000 : 50'000;
    grant_->rate_ppm.raw = static_cast<std::uint32_t>(numbers_.below(1'200'000));
    grant_->lease.raw = static_cast<std::uint32_t>(kModes[numbers_.below(kModes.size())]) |
                        ((grant_->lease.raw >> 2U) + 1) << 2U;
  }

  void act(std::uint32_t number, Decisions& decisions) {
    Process& process = processes_[number];
    const std::size_t thread = numbers_.below(kLanes);
    switch (numbers_.below(8)) {
      case 0: close_stale(process, process.lanes[thread], decisions); break;
      case 1:
      case 2: complete(process, decisions); break;
      case 3:
        decisions.add({process.gate.expected_end_ns(now_), process.gate.on_its_own() ? 1U : 0U});
        if (numbers_.one_of(20)) process.gate.give_credit_back(process.lanes[thread], now_);
        break;
      default: launch(process, thread, decisions);
    }
  }

  void launch(Process& process, std::size_t thread, Decisions& decisions) {
    Lane& lane = process.lanes[thread];
    const std::uint64_t key = numbers_.below(6);
    const std::uint64_t stream = numbers_.one_of(5) ? 2 : 1;
    const Passage passage = process.gate.enter(lane, key, stream, [this] { return now_; });
    decisions.add({static_cast<std::uint64_t>(passage.verdict), passage.begin_marker ? 1U : 0U, passage.close ? 1U : 0U,
                   passage.futex_value, passage.wait_ns, passage.estimate_ns});
    if (passage.verdict == Verdict::kWaitGrant) {
      if (!process.waits[thread]) decisions.add({process.gate.starts_waiting() ? 1U : 0U});
      process.waits[thread] = true;
      return;
    }
    if (process.waits[thread]) process.gate.left_waiting();
    process.waits[thread] = false;
    if (passage.close) queue(process, passage.closed);
    if (passage.verdict != Verdict::kGo) return;
    if (numbers_.one_of(15)) return process.gate.withdraw(lane, passage);
    Segment closed;
    if (process.gate.leave(lane, passage, &closed)) queue(process, closed);
  }

  void close_stale(Process& process, Lane& lane, Decisions& decisions) {
    Segment closed;
    const bool record = process.gate.close_stale(lane, now_, &closed);
    decisions.add({record ? 1U : 0U});
    if (record) queue(process, closed);
  }

  // Work takes about as long as its kind did before, sometimes much longer.
  void queue(Process& process, const Segment& segment) {
    const std::uint64_t begin = process.pending.empty() || numbers_.one_of(4) ? now_ : process.pending.back().end;
    const std::uint64_t length = 20 * kUs + numbers_.below(numbers_.one_of(10) ? 30 * kMs : 2 * kMs);
    process.pending.push_back({segment, begin, begin + length});
  }

  void complete(Process& process, Decisions& decisions) {
    while (!process.pending.empty() && process.pending.front().end <= now_) {
      const Pending done = process.pending.front();
      process.pending.pop_front();
      const std::uint64_t expected = process.gate.longest_expected_ns(done.segment);
      bool notify = false;
      switch (numbers_.below(8)) {
        case 0: notify = process.gate.ended(done.segment, now_); break;
        case 1: notify = process.gate.abandoned(done.segment, expected, now_); break;
        default: notify = process.gate.completed(done.segment, done.begin, done.end, now_);
      }
      decisions.add({expected, notify ? 1U : 0U});
    }
  }

  void record(std::uint32_t number, Decisions& decisions) {
    const abi::AccountEntry& seen = entry(number);
    decisions.add({now_, number, seen.busy_ns.raw, seen.inflight_ns.raw, seen.anchor_ns.raw, seen.want.raw,
                   seen.busy.raw, seen.max_op_us.raw});
  }

  Numbers numbers_;
  std::unique_ptr<abi::GrantPage> grant_ = std::make_unique<abi::GrantPage>();
  std::unique_ptr<abi::AccountPage> account_ = std::make_unique<abi::AccountPage>();
  std::vector<Process> processes_;
  std::uint64_t now_ = 1'000 * kMs;
  std::uint64_t silent_until_ = 0;
};

TEST(GateDecisions, AreThoseOnRecord) {
  const struct {
    std::uint32_t processes;
    std::uint64_t sum;
  } scenes[] = {
      {1, 0x41e2460e38945327ULL},
      {2, 0x84d9d774b795901dULL},
      {5, 0x640b3ecd3ceb3fb8ULL}};
  for (const auto& [processes, sum] : scenes) {
    Decisions decisions("gate-" + std::to_string(processes));
    Slice(processes, processes).play(20'000, decisions);
    EXPECT_EQ(decisions.sum(), sum) << "with " << processes << " processes; see base/testing/decisions.h";
  }
}

}  // namespace
}  // namespace carve::lease
