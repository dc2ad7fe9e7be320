#pragma once

#include <cstdint>

#include "abi/page.h"
#include "lease/cost_table.h"
#include "lease/coverage.h"

// The client's side of a lease: may this piece of work go to the card now, how much is in flight, what did it
// take. One Gate per process and card, one Lane per thread and card. Freestanding: it never waits, looks at a
// clock or records a marker; it says what is to be done, and is told what was seen.
//
// How the caller uses it, for every launch (the lane is the caller's to lock: its own thread, or the helper that
// closes what the thread left open):
//   Passage p = gate.enter(lane, key, stream, clock);
//   while p.verdict waits: (the first time, for a grant: starts_waiting()) wait on the futex word or for a
//                          completion, p = gate.enter(…) again; at last left_waiting()
//   p.close: record an end marker on p.closed.stream, queue p.closed with it
//   p.begin_marker: record a begin marker on `stream`
//   launch; when the driver refuses: gate.withdraw(lane, p)
//   gate.leave(lane, p) → a segment to close (end marker on `stream`) or none
// and one helper thread per process, for each closed segment whose end marker has passed:
//   gate.completed(segment, begin, end, now)
// What ended is told to a gate by one thread at a time, completed() and abandoned() alike: the caller's lock.
namespace carve::lease {

/// Work of one thread on one stream between two markers.
struct Segment {
  static constexpr std::uint32_t kKeys = 4;  // distinct kinds remembered; more share the segment's ratio
  bool open = false;
  std::uint64_t stream = 0;
  std::uint64_t estimate_ns = 0;
  std::uint32_t operations = 0;
  std::uint32_t distinct = 0;
  std::uint64_t keys[kKeys] = {};
  std::uint32_t counts[kKeys] = {};
};

/// One thread's share of the process' credit, and the segment it is in.
struct Lane {
  std::uint32_t lease_word = 0;     // the grant under which the credit was taken
  std::uint64_t credit_ns = 0;      // reserved in flight, not yet used
  std::uint64_t segment_target_ns = 0;
  std::uint32_t seen_operations = 0;  // in the open segment when close_stale() last looked
  Segment segment;
};

enum class Verdict : std::uint8_t {
  kGo,
  kWaitGrant,       // until the lease word differs from `futex_value`, at the longest `wait_ns`
  kWaitCompletion,  // until something in flight completed, at the longest `wait_ns`
  kRefuse,          // the slice is revoked
};

struct Passage {
  Verdict verdict = Verdict::kGo;
  bool begin_marker = false;  // this work opens a segment
  bool close = false;         // `closed` was open on another stream and ends here
  std::uint32_t futex_value = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t estimate_ns = 0;
  std::uint64_t key = 0;
  Segment closed;
};

/// The figures of the gate; ns.
struct GateTuning {
  std::uint64_t marker_every = 1'000'000;       // estimated work between markers under a lease
  std::uint64_t solo_marker_every = 10'000'000; // … when alone
  std::uint64_t longest_wait = 50'000'000;      // then look again: the arbiter may have died
  std::uint64_t look_every = 500'000;           // the caller sees a marker at most so late
  std::uint64_t late_limit = 20'000'000;        // work that is late by more than this holds up no other work
};

class Gate {
 public:
  void attach(const abi::GrantPage* grant, abi::AccountPage* account, abi::AccountSlot* slot,
              const GateTuning& tuning = {}) {
    grant_ = grant;
    account_ = account;
    slot_ = slot;
    tuning_ = tuning;
    busy_total_ns_ = slot->busy_ns.load_relaxed();  // it only ever grows, whoever had the slot before
  }

  /// May one piece of work go now? `clock()` gives now in the page's clock and is asked on the slow path only.
  /// Cost of the fast path: two loads, a compare, two adds.
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

  /// The fast path alone, without the rest of a Passage: true when this work may go under credit that the lane has,
  /// in the segment that is open. Then, after the launch, leave_fast(); where that says false, leave() with a
  /// Passage of this key and estimate. False here: nothing was done, call enter().
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
  /// False: nothing was done, call leave(): another kind of work, or the segment is full.
  [[nodiscard]] static bool leave_fast(Lane& lane, std::uint64_t key, std::uint64_t estimate_ns) {
    Segment& segment = lane.segment;
    const std::uint64_t sum = segment.estimate_ns + estimate_ns;
    if (segment.keys[0] != key || segment.distinct == 0 || sum >= lane.segment_target_ns) return false;
    segment.estimate_ns = sum;
    ++segment.operations;
    ++segment.counts[0];
    return true;
  }

  /// After the launch. True: `out` is a closed segment; record its end marker now.
  bool leave(Lane& lane, const Passage& passage, Segment* out);
  /// The driver refused the launch: what was reserved for it is free again.
  void withdraw(Lane& lane, const Passage& passage) { lane.credit_ns += passage.estimate_ns; }

  /// A thread that was told kWaitGrant begins to wait. True: tell the arbiter (bump the doorbell, wake it).
  [[nodiscard]] bool starts_waiting();
  /// It waits no more: it may go, or gave up. Once per starts_waiting(), not per look.
  void left_waiting();

  /// Closes the segment to which nothing was added since the last look, and takes the unused credit back. True:
  /// record the end marker for `out`. The helper looks about every 200 us.
  bool close_stale(Lane& lane, std::uint64_t now, Segment* out);
  /// Hands unused credit back: the lane's thread ends or did nothing for a while.
  void give_credit_back(Lane& lane, std::uint64_t now);

  /// The segment's end marker has passed. `begin_ns`, `end_ns`: when its work ran, on the card's own clock;
  /// `now`: page clock. True: the arbiter is to be told (its lease holder fell idle, or a drain ended).
  bool completed(const Segment& segment, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t now);
  /// The segment's end marker has passed, and when it began is not known: it counts since the card was last seen to get
  /// on with something, which is the longest time that it can have taken.
  bool ended(const Segment& segment, std::uint64_t now);
  /// The time after which a segment without an end marker may be taken for over, ns: what was expected of it, and of
  /// work that was never measured the most that is expected of any.
  [[nodiscard]] std::uint64_t longest_expected_ns(const Segment& segment) const;
  /// When all that is in flight should be over.
  [[nodiscard]] std::uint64_t expected_end_ns(std::uint64_t now) const;
  /// The segment ended without a measurement (it captured, or its context is gone): it counts for as long as was
  /// expected, ending now, less what was measured of that time.
  bool abandoned(const Segment& segment, std::uint64_t expected_ns, std::uint64_t now);

  [[nodiscard]] CostTable& costs() { return costs_; }
  [[nodiscard]] bool anything_in_flight() const { return slot_->inflight_ns.load_relaxed() != 0; }
  /// True while the arbiter is silent and the local bucket rules.
  [[nodiscard]] bool on_its_own() const { return __atomic_load_n(&on_its_own_, __ATOMIC_RELAXED); }

 private:
  Passage enter_slowly(Lane& lane, std::uint64_t key, std::uint64_t stream, std::uint32_t word,
                       std::uint64_t estimate, std::uint64_t now);
  Verdict reserve(Lane& lane, std::uint32_t word, std::uint64_t estimate, std::uint64_t now);
  struct InFlight {  // of all processes of the slice, and since when the card has been at it
    std::uint64_t ns;
    std::uint64_t anchor_ns;
    std::uint64_t longest_ns;  // the longest operation that another process has measured
    std::uint32_t processes;   // this one and those that have something in flight
  };
  enum class Fit : std::uint8_t { kYes, kLate, kNoGrant, kNoCredit };
  /// Whether more may follow what is in flight; kLate: yes, what is in flight should have ended long ago.
  [[nodiscard]] Fit fits(std::uint64_t own_ns, std::uint32_t word, std::uint64_t now);
  [[nodiscard]] InFlight in_flight(std::uint64_t own_ns) const;
  [[nodiscard]] bool goes_first(std::uint32_t word) const;
  [[nodiscard]] std::uint32_t slots_in_use() const;
  bool local_bucket_allows(std::uint64_t estimate, std::uint64_t now);
  [[nodiscard]] Passage wait(Passage passage, Verdict verdict, std::uint32_t word) const;
  void open_segment(Lane& lane, std::uint64_t stream, Passage* passage);
  void learn(const Segment& segment, std::uint64_t measured_ns);
  bool finish(std::uint64_t estimate_ns, std::uint64_t now);

  const abi::GrantPage* grant_ = nullptr;
  abi::AccountPage* account_ = nullptr;
  abi::AccountSlot* slot_ = nullptr;
  GateTuning tuning_;
  CostTable costs_;
  std::uint32_t waiting_ = 0;         // threads that were told to wait for a grant
  Coverage covered_;                  // measured time on the card's clock, each moment counted once
  std::uint64_t busy_total_ns_ = 0;
  std::uint64_t longest_ns_ = 0;      // expected of what was launched lately, up to a marker
  bool on_its_own_ = false;
  std::int64_t local_tokens_ = 0;     // ns of card time, while on its own
  std::uint64_t local_last_ = 0;
};

}  // namespace carve::lease
