#pragma once

#include <cstdint>

#include "abi/page.h"

// Who may use one card's time now. One object per card, driven by whoever owns the pages: it is told what the
// slices' pages say at a moment, and answers with the grants that are to stand in them from that moment on.
// Freestanding: no clock, no wait, no memory but its own. Same inputs, same decisions: that is what the replay
// of a recorded trace proves.
//
// The law (measured-time leases): each slice has a weighted virtual time, charged with the card time it
// occupied, by working or by holding the card while others waited; the slice that is furthest behind gets the
// next lease; who is alone has the card without a limit; `fixed` slices also pay from a bucket of tokens that
// fills at their rate, so that they stay at it when alone.
namespace carve::lease {

inline constexpr std::uint32_t kMaxSlices = 128;  // per card
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// The figures of the law; all times in ns.
struct Tuning {
  std::uint64_t quantum = 12'000'000;          // length of a lease that somebody else waits for
  std::uint64_t drain_timeout = 6'000'000;     // how long a lease's work may run over before the next one begins
  std::uint64_t early_handoff = 100'000;       // … or before, when no more than this is left in flight
  std::uint64_t idle_yield = 300'000;          // a holder with nothing in flight for so long gives way
  std::uint64_t idle_forget = 20'000'000;      // so long without want or work: not a competitor any more
  std::uint64_t token_burst = 50'000'000;      // of a `fixed` bucket, times its rate
  std::uint32_t unused_leases = 3;             // so many in a row without any work by who asked for them: …
  std::uint64_t pass_over = 100'000'000;       // … it waits so long behind those who work
  std::uint64_t rescue_after = 100'000'000;    // blocked, work in flight, no progress: a lease to get unstuck
  std::uint32_t rescue_percent = 10;           // of the card, for all such leases, at the most
  std::uint64_t outranked_rescue = 4'000'000;  // the same beside slices of a higher class: of this length, …
  std::uint32_t outranked_percent = 5;         // … no more of the card than this, …
  std::uint32_t rescue_doublings = 6;          // … and so often the pause doubles, while all was in vain
  std::uint32_t credit_us = 4'000;             // work in flight under a lease
  std::uint32_t offline_credit_us = 1'500;     // … of an offline slice beside an online one
  std::uint32_t solo_credit_us = 50'000;       // work in flight when alone
};

/// What the slice was promised.
struct Terms {
  std::uint32_t compute = 100;  // 1/100 of the card, 1..100; 0 for besteffort
  abi::ShareClass share = abi::ShareClass::kBurst;
  abi::PriorityClass priority = abi::PriorityClass::kStandard;
};

/// What a slice's account page said at the moment of the step, all its processes together, each word read once.
struct Observation {
  bool want = false;              // a launch waits
  bool busy = false;              // work is in flight
  std::uint64_t inflight_ns = 0;  // how long until it is done, by the slice's own estimate
  std::uint64_t edge_ns = 0;      // when busy last changed; 0 = unknown, the moment of the step is taken
  std::uint64_t busy_ns = 0;      // ever-growing GPU time measured by the slice
  std::uint32_t processes = 0;    // with work in flight; 0 counts as 1 while `busy`
};

/// What is to stand in a slice's grant page.
struct Grant {
  abi::LeaseMode mode = abi::LeaseMode::kBlocked;
  std::uint64_t end_ns = 0;      // of a kLease
  std::uint32_t credit_us = 0;
  std::uint32_t rate_ppm = 0;    // millionths of the card: what the slice may use alone when we are silent
  std::uint32_t epoch = 0;       // changes with every new decision about this slice
};

class Arbiter {
 public:
  explicit Arbiter(const Tuning& tuning = {}) : tuning_(tuning) {}

  /// Adds a slice; its number stays its own until removed. −1: there are kMaxSlices already.
  int add(const Terms& terms);
  void remove(int slice);
  void set_terms(int slice, const Terms& terms);

  /// One step: `now` never goes back (a smaller one counts as the last). `observations` has one entry per slice
  /// number below `slices_end()`; entries of removed ones are ignored. Cost: O(slices), no allocation.
  void step(std::uint64_t now_ns, const Observation* observations);

  /// When step() has to be called at the latest, without any edge; kNever when nothing is due.
  [[nodiscard]] std::uint64_t next_step_ns() const { return next_step_; }
  [[nodiscard]] const Grant& grant(int slice) const { return slices_[slice].grant; }
  [[nodiscard]] int slices_end() const { return end_; }
  [[nodiscard]] bool is_used(int slice) const { return slices_[slice].used; }
  /// Card time charged to the slice since it was added, ns.
  [[nodiscard]] std::uint64_t charged_ns(int slice) const { return slices_[slice].charged; }
  /// Leases out of turn that the slice was given since it was added, because its work seemed to wait for a launch.
  [[nodiscard]] std::uint64_t rescues(int slice) const { return slices_[slice].rescues; }

 private:
  struct Slice {
    bool used = false;
    bool active = false;           // wants or works, or did so within idle_forget
    bool was_busy = false;         // since the last step
    bool want = false;
    bool exhausted = false;        // `fixed`: out of tokens until a batch has gathered
    std::uint32_t unused = 0;      // leases in a row that it asked for and did nothing with
    std::uint64_t passed_over_until = 0;
    std::uint64_t inflight = 0;
    std::uint64_t last_active = 0; // last time with want or work
    std::uint64_t idle_since = 0;  // of a holder: when its work ended
    std::uint64_t blocked_since = 0;
    std::uint32_t in_vain = 0;     // rescues since it last had nothing in flight
    std::uint64_t rescues = 0;
    std::uint64_t busy_ns = 0;     // last reported
    std::uint64_t processes = 1;   // with work in flight since the last step
    std::uint64_t charged = 0;
    std::int64_t presumed = 0;     // charged by the clock and not measured yet, since settled_at
    std::uint64_t worked = 0;      // time with work in flight since settled_at
    std::uint64_t slack = 0;       // of this turn: pauses for which it is not charged
    std::uint64_t unused_turn = 0; // time it had the card and was not seen to work, since settled_at
    std::uint64_t settled_at = 0;
    std::int64_t tokens = 0;       // ns of card time; `fixed` only
    std::uint64_t virtual_time = 0;
    Terms terms;
    Grant grant;
  };

  void forget_gap(std::uint64_t now, const Observation* observations);
  void charge(std::uint64_t now, const Observation* observations);
  void settle(Slice& slice, std::uint64_t now);
  void charge_use(Slice& slice, std::uint64_t nanoseconds);         // what it did: tokens
  void charge_turn(Slice& slice, std::uint64_t nanoseconds) const;  // what it had: its place in the queue
  void refill(Slice& slice, std::uint64_t elapsed) const;
  void observe(std::uint64_t now, const Observation* observations);
  void wake(Slice& slice);
  void rule_holder(std::uint64_t now);
  void begin_drain(std::uint64_t now);
  void turn_ends(Slice& slice, std::uint64_t now) const;
  void choose_next(std::uint64_t now);
  void publish(std::uint64_t now);
  void plan_next_step(std::uint64_t now);
  [[nodiscard]] int best_candidate(std::uint64_t now) const;
  [[nodiscard]] int best_waiting(std::uint64_t now) const;
  [[nodiscard]] int stuck_slice(std::uint64_t now) const;
  [[nodiscard]] bool stuck(const Slice& slice) const;
  struct Rescue {
    std::uint64_t due;     // kNever: not now
    std::uint64_t length;
  };
  [[nodiscard]] Rescue rescue_of(const Slice& slice) const;
  void begin_lease(int next, std::uint64_t now, bool rescue);
  [[nodiscard]] int used_count() const;
  [[nodiscard]] int only_slice() const;
  [[nodiscard]] std::uint64_t end_of_lease(const Slice& slice, std::uint64_t now) const;
  [[nodiscard]] bool goes_before(const Slice& a, const Slice& b, std::uint64_t now) const;
  [[nodiscard]] bool capped(const Slice& slice) const;
  [[nodiscard]] bool eligible(const Slice& slice) const;
  [[nodiscard]] std::uint64_t weight(const Slice& slice) const;
  [[nodiscard]] std::uint64_t least_virtual_time(const Slice* except) const;
  [[nodiscard]] int active_count() const;
  [[nodiscard]] std::uint32_t credit_of(const Slice& slice) const;
  void set_grant(Slice& slice, abi::LeaseMode mode, std::uint64_t end, std::uint32_t credit);

  Tuning tuning_;
  Slice slices_[kMaxSlices];
  int end_ = 0;
  int holder_ = -1;          // who has the lease, or −1
  bool rescuing_ = false;    // the lease was given out of turn
  int draining_ = -1;        // whose work still runs over, or −1
  std::uint64_t rescued_at_ = 0;   // when the last lease out of turn began
  std::uint64_t lease_end_ = 0;
  std::uint64_t drain_deadline_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t next_step_ = kNever;
  bool started_ = false;
};

}  // namespace carve::lease
