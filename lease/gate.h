#pragma once

#include <cstdint>

#include "abi/page.h"
#include "lease/cost_table.h"
#include "lease/coverage.h"

// The client's side of a lease: decides whether work may go to the card now, and counts what is in flight and how long
// it took. One Gate per process and card, one Lane per thread and card. Freestanding: it never waits, reads a clock or
// records a marker. It returns what the caller must do, and the caller reports what happened.
//
// The caller's steps for every launch (the caller locks the lane: its own thread uses it, and so does the helper that
// closes the segments that the thread left open):
//   Passage p = gate.enter(lane, key, stream, clock);
//   while p.verdict is a wait: (before the first wait for a grant: starts_waiting()) wait on the futex word or for a
//                          completion, p = gate.enter(…) again; at the end left_waiting()
//   p.close: record an end marker on p.closed.stream, queue p.closed with it
//   p.begin_marker: record a begin marker on `stream`
//   launch; if the driver refuses: gate.withdraw(lane, p)
//   gate.leave(lane, p) → a segment to close (end marker on `stream`) or none
// and the steps of one helper thread per process for each closed segment after its end marker:
//   gate.completed(segment, begin, end, now)
// Only one thread at a time may call completed(), ended() or abandoned(): the caller holds a lock.
namespace carve::lease {

/// Work of one thread on one stream between two markers.
struct Segment {
  static constexpr std::uint32_t kKeys = 4;  // distinct kinds remembered; others only count in the segment's ratio
  bool open = false;
  std::uint64_t stream = 0;
  std::uint64_t estimate_ns = 0;
  std::uint32_t operations = 0;
  std::uint32_t distinct = 0;
  std::uint64_t keys[kKeys] = {};
  std::uint32_t counts[kKeys] = {};
};

/// One thread's share of the process's credit, and its segment.
struct Lane {
  std::uint32_t lease_word = 0;     // the grant under which the credit was taken
  std::uint64_t credit_ns = 0;      // reserved as in flight, not yet used
  std::uint64_t segment_target_ns = 0;
  std::uint32_t seen_operations = 0;  // in the open segment at the last close_stale()
  Segment segment;
};

enum class Verdict : std::uint8_t {
  kGo,
  kWaitGrant,       // until the lease word differs from `futex_value`, at most `wait_ns`
  kWaitCompletion,  // until work in flight completes, at most `wait_ns`
  kRefuse,          // the slice was revoked
};

struct Passage {
  Verdict verdict = Verdict::kGo;
  bool begin_marker = false;  // this work opens a segment
  bool close = false;         // `closed` was open on another stream and ends now
  std::uint32_t futex_value = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t estimate_ns = 0;
  std::uint64_t key = 0;
  Segment closed;
};

/// The constants of the gate, in ns.
struct GateTuning {
  std::uint64_t marker_every = 1'000'000;       // estimated work between markers under a lease
  std::uint64_t solo_marker_every = 10'000'000; // … when the slice is alone
  std::uint64_t longest_wait = 50'000'000;      // then check again: the arbiter may have died
  std::uint64_t look_every = 500'000;           // the caller sees a marker at most this late
  std::uint64_t late_limit = 20'000'000;        // work that is late by more than this holds up no other work
};

class Gate {
 public:
  void attach(const abi::GrantPage* grant, abi::AccountPage* account, abi::AccountEntry* entry,
              const GateTuning& tuning = {}) {
    grant_ = grant;
    account_ = account;
    entry_ = entry;
    tuning_ = tuning;
    busy_total_ns_ = entry->busy_ns.load_relaxed();  // the word never decreases, also under a new process
  }

  /// Decides whether one piece of work may go now. `clock()` returns now in the page's clock; only the slow path calls
  /// it. Cost of the fast path: two loads, a compare, two adds.
  template <class Clock>
  Passage enter(Lane& lane, std::uint64_t key, std::uint64_t stream, const Clock& clock) {
    const std::uint32_t word = grant_->lease.load_acquire();
    const std::uint64_t estimate = costs_.estimate_ns(key);
    Segment& segment = lane.segment;
    if (__builtin_expect(word == lane.lease_word && estimate <= lane.credit_ns && segment.open &&
                             segment.stream == stream, 1)) {
      lane.credit_ns -= estimate;
      Passage passage;
      passage.estimate_ns = estimate;
      passage.key = key;
      return passage;
    }
    return enter_slowly(lane, key, stream, word, estimate, clock());
  }

  /// The fast path only, without a Passage. True: this work may go under the lane's credit, in the open segment. After
  /// the launch call leave_fast(), and if that returns false, leave() with a Passage of this key and estimate. False:
  /// nothing was done, call enter().
  [[nodiscard]] bool enter_fast(Lane& lane, std::uint64_t key, std::uint64_t stream, std::uint64_t* estimate_ns) {
    const std::uint64_t estimate = costs_.estimate_ns(key);
    if (grant_->lease.load_acquire() != lane.lease_word || estimate > lane.credit_ns || !lane.segment.open ||
        lane.segment.stream != stream) {
      return false;
    }
    lane.credit_ns -= estimate;
    *estimate_ns = estimate;
    return true;
  }
  /// False: nothing was done, call leave(). It is another kind of work, or the segment is full.
  [[nodiscard]] static bool leave_fast(Lane& lane, std::uint64_t key, std::uint64_t estimate_ns) {
    Segment& segment = lane.segment;
    const std::uint64_t sum = segment.estimate_ns + estimate_ns;
    if (segment.keys[0] != key || segment.distinct == 0 || sum >= lane.segment_target_ns) return false;
    segment.estimate_ns = sum;
    ++segment.operations;
    ++segment.counts[0];
    return true;
  }

  /// Called after the launch. True: `out` is a closed segment; record its end marker now.
  bool leave(Lane& lane, const Passage& passage, Segment* out);
  /// Called when the driver refused the launch: returns the launch's credit to the lane.
  void withdraw(Lane& lane, const Passage& passage) { lane.credit_ns += passage.estimate_ns; }

  /// A thread that got kWaitGrant begins to wait. True: notify the arbiter (increment the doorbell, wake it).
  [[nodiscard]] bool starts_waiting();
  /// The thread no longer waits: it may go, or it gave up. Called once per starts_waiting(), not once per check.
  void left_waiting();

  /// Closes the segment and returns the unused credit if nothing was added since the last call. True: record the end
  /// marker for `out`. The helper calls it about every 200 us.
  bool close_stale(Lane& lane, std::uint64_t now, Segment* out);
  /// Returns the unused credit of a lane when its thread ends or was idle for a while.
  void give_credit_back(Lane& lane, std::uint64_t now);

  /// The segment's end marker has passed. `begin_ns`, `end_ns`: the time of its work on the card's own clock; `now`:
  /// page clock. True: notify the arbiter (its lease holder became idle, or a drain ended).
  bool completed(const Segment& segment, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t now);
  /// The segment's end marker has passed, but its begin is unknown: the segment counts from the last observed progress
  /// of the card, which is the longest time that it can have taken.
  bool ended(const Segment& segment, std::uint64_t now);
  /// The time in ns after which a segment without an end marker may be treated as ended: its estimate, or at least the
  /// longest assumed duration if it contains work that was never measured.
  [[nodiscard]] std::uint64_t longest_expected_ns(const Segment& segment) const;
  /// The time at which all work in flight is expected to end.
  [[nodiscard]] std::uint64_t expected_end_ns(std::uint64_t now) const;
  /// The segment ended without a measurement (it captured, or its context was destroyed). Its expected time, ending
  /// now, counts, except for the part of that time that was already measured.
  bool abandoned(const Segment& segment, std::uint64_t expected_ns, std::uint64_t now);

  [[nodiscard]] CostTable& costs() { return costs_; }
  [[nodiscard]] bool anything_in_flight() const { return entry_->inflight_ns.load_relaxed() != 0; }
  /// True while the arbiter is silent and the local bucket decides.
  [[nodiscard]] bool on_its_own() const { return __atomic_load_n(&on_its_own_, __ATOMIC_RELAXED); }

 private:
  Passage enter_slowly(Lane& lane, std::uint64_t key, std::uint64_t stream, std::uint32_t word,
                       std::uint64_t estimate, std::uint64_t now);
  Verdict reserve(Lane& lane, std::uint32_t word, std::uint64_t estimate, std::uint64_t now);
  struct InFlight {  // the work of all processes of the slice, and the time since which the card runs it
    std::uint64_t ns;
    std::uint64_t anchor_ns;
    std::uint64_t longest_ns;  // the longest operation that another process has measured
    std::uint32_t processes;   // this process and those that have work in flight
  };
  enum class Fit : std::uint8_t { kYes, kLate, kNoGrant, kNoCredit };
  /// Whether more work may follow the work in flight. kLate: yes, the work in flight should have ended long ago.
  [[nodiscard]] Fit fits(std::uint64_t own_ns, std::uint32_t word, std::uint64_t now);
  [[nodiscard]] InFlight in_flight(std::uint64_t own_ns) const;
  [[nodiscard]] bool goes_first(std::uint32_t word) const;
  [[nodiscard]] std::uint32_t entries_in_use() const;
  bool local_bucket_allows(std::uint64_t estimate, std::uint64_t now);
  [[nodiscard]] Passage wait(Passage passage, Verdict verdict, std::uint32_t word) const;
  void open_segment(Lane& lane, std::uint64_t stream, Passage* passage);
  void learn(const Segment& segment, std::uint64_t measured_ns);
  bool finish(std::uint64_t estimate_ns, std::uint64_t now);

  const abi::GrantPage* grant_ = nullptr;
  abi::AccountPage* account_ = nullptr;
  abi::AccountEntry* entry_ = nullptr;
  GateTuning tuning_;
  CostTable costs_;
  std::uint32_t waiting_ = 0;         // number of threads that wait for a grant
  Coverage covered_;                  // measured time on the card's clock, each moment counted once
  std::uint64_t busy_total_ns_ = 0;
  std::uint64_t longest_ns_ = 0;      // expected longest time of recent work up to a marker
  bool on_its_own_ = false;
  std::int64_t local_tokens_ = 0;     // ns of card time, while on its own
  std::uint64_t local_last_ = 0;
};

}  // namespace carve::lease
