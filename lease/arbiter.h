#pragma once

#include <cstdint>

#include "abi/page.h"

// Decides which slice may use one card's time now. There is one object per card, driven by the owner of the pages. In
// each step the owner passes in what the slices' pages contain at that moment, and the object returns the grants for
// these pages from that moment on. Freestanding: no clock, no wait, no memory except its own. The same inputs lead to
// the same decisions; the replay of a recorded trace proves it.
//
// The algorithm (measured-time leases): Each slice has a weighted virtual time. It is charged with the card time that
// the slice occupied, by work or by holding the card while other slices waited. The slice with the least virtual time
// gets the next lease. A slice that is alone has the card without a limit. A slice with a cap (`fixed`, or a ceiling)
// also pays from a bucket of tokens that fills at the rate of its cap, so it stays at that rate when it is alone.
namespace carve::lease {

inline constexpr std::uint32_t kMaxSlices = 128;  // per card
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// The constants of the algorithm. Times in ns, except the credits, which are in us.
struct Tuning {
  std::uint64_t quantum = 12'000'000;          // length of a lease while another slice waits
  std::uint64_t drain_timeout = 6'000'000;     // longest time for which work that runs on delays the next lease
  std::uint64_t early_handoff = 100'000;       // … which begins earlier when at most this much is in flight
  std::uint64_t idle_yield = 300'000;          // a holder with nothing in flight for this long yields
  std::uint64_t idle_forget = 20'000'000;      // a slice without want or work for this long no longer competes
  std::uint64_t token_burst = 50'000'000;      // of a bucket of tokens, times its rate
  std::uint32_t unused_leases = 3;             // after this many unused leases in a row that it asked for, …
  std::uint64_t pass_over = 100'000'000;       // … a slice goes behind the other slices for this long
  std::uint64_t rescue_after = 100'000'000;    // blocked this long, work in flight, no progress: a rescue lease
  std::uint32_t rescue_percent = 10;           // most of the card that all rescue leases together get
  std::uint64_t outranked_rescue = 4'000'000;  // a rescue next to slices of a higher class has this length, …
  std::uint32_t outranked_percent = 5;         // … at most this part of the card, …
  std::uint32_t rescue_doublings = 6;          // … and its pause doubles up to this many times while no work ends
  std::uint32_t credit_us = 4'000;             // work in flight under a lease
  std::uint32_t offline_credit_us = 1'500;     // … of an offline slice beside an online one
  std::uint32_t solo_credit_us = 50'000;       // work in flight when the slice is alone
};

/// The terms that the slice was promised.
struct Terms {
  std::uint32_t compute = 100;  // 1/100 of the card, 1..100; 0 for besteffort
  abi::ShareClass share = abi::ShareClass::kBurst;
  abi::PriorityClass priority = abi::PriorityClass::kStandard;
  std::uint32_t ceiling = 100;  // 1/100 of the card that the slice gets at most, on an idle card too; 100: no limit.
                                // At least `compute`; ignored for `fixed`, of which `compute` is the cap
};

/// The contents of a slice's account page at the moment of the step: the sum of all its processes, each word read once.
struct Observation {
  bool want = false;              // a launch waits
  bool busy = false;              // work is in flight
  std::uint64_t inflight_ns = 0;  // time until the work is done, as estimated by the slice
  std::uint64_t edge_ns = 0;      // when `busy` last changed; 0 = unknown, the time of the step counts
  std::uint64_t busy_ns = 0;      // GPU time measured by the slice; only grows
  std::uint32_t processes = 0;    // number with work in flight; 0 counts as 1 while `busy`
};

/// The values for a slice's grant page.
struct Grant {
  abi::LeaseMode mode = abi::LeaseMode::kBlocked;
  std::uint64_t end_ns = 0;      // of a kLease
  std::uint32_t credit_us = 0;
  std::uint32_t rate_ppm = 0;    // millionths of the card: the slice's local rate while the arbiter is silent
  std::uint32_t epoch = 0;       // changes with every new decision about this slice
};

class Arbiter {
 public:
  explicit Arbiter(const Tuning& tuning = {}) : tuning_(tuning) {}

  /// Adds a slice and returns its number, which stays valid until remove(). Returns −1 if there are kMaxSlices already.
  int add(const Terms& terms);
  void remove(int slice);
  void set_terms(int slice, const Terms& terms);

  /// Performs one step. `now_ns` never goes back: a smaller value counts as the previous one. `observations` has one
  /// entry per slice number below `slices_end()`; the entries of removed slices are ignored.
  /// Cost: O(slices), no allocation.
  void step(std::uint64_t now_ns, const Observation* observations);

  /// The latest time of the next step() call if no edge occurs before; kNever when nothing is due.
  [[nodiscard]] std::uint64_t next_step_ns() const { return next_step_; }
  [[nodiscard]] const Grant& grant(int slice) const { return slices_[slice].grant; }
  [[nodiscard]] int slices_end() const { return end_; }
  [[nodiscard]] bool is_used(int slice) const { return slices_[slice].used; }
  /// Card time charged to the slice since it was added, ns.
  [[nodiscard]] std::uint64_t charged_ns(int slice) const { return slices_[slice].charged; }
  /// Number of leases out of turn since the slice was added. It gets one when its work seems to wait for a launch.
  [[nodiscard]] std::uint64_t rescues(int slice) const { return slices_[slice].rescues; }
  /// True: a slice with a cap has used up its rate, and gets no lease until a batch of tokens has accumulated.
  [[nodiscard]] bool exhausted(int slice) const { return slices_[slice].exhausted; }

 private:
  struct Slice {
    bool used = false;
    bool active = false;           // has a waiting launch or work in flight, or had one within idle_forget
    bool was_busy = false;         // at the last step
    bool want = false;
    bool exhausted = false;        // with a cap: has no tokens until a batch has accumulated
    std::uint32_t unused = 0;      // leases in a row that it asked for and did not use
    std::uint64_t passed_over_until = 0;
    std::uint64_t inflight = 0;
    std::uint64_t last_active = 0; // last time with a waiting launch or work in flight
    std::uint64_t idle_since = 0;  // of a holder: the time when its work ended
    std::uint64_t blocked_since = 0;
    std::uint32_t failed_rescues = 0;  // rescues since it last had nothing in flight
    std::uint64_t rescues = 0;
    std::uint64_t busy_ns = 0;     // last reported
    std::uint64_t processes = 1;   // number with work in flight at the last step
    std::uint64_t charged = 0;
    std::int64_t presumed = 0;     // charged by the clock and not measured yet, since settled_at
    std::uint64_t worked = 0;      // time with work in flight since settled_at
    std::uint64_t slack = 0;       // of this turn: pause time that is not charged
    std::uint64_t unused_turn = 0; // time with the card and without observed work, since settled_at
    std::uint64_t settled_at = 0;
    std::int64_t tokens = 0;       // ns of card time; only with a cap
    std::uint64_t virtual_time = 0;
    Terms terms;
    Grant grant;
  };

  void forget_gap(std::uint64_t now, const Observation* observations);
  void charge(std::uint64_t now, const Observation* observations);
  void settle(Slice& slice, std::uint64_t now);
  void charge_use(Slice& slice, std::uint64_t nanoseconds);         // the work that it did: tokens
  void charge_turn(Slice& slice, std::uint64_t nanoseconds) const;  // the time that it had: virtual time
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
  [[nodiscard]] std::int64_t full_bucket(const Slice& slice) const;
  [[nodiscard]] std::int64_t batch(const Slice& slice) const;
  [[nodiscard]] bool eligible(const Slice& slice) const;
  [[nodiscard]] std::uint64_t weight(const Slice& slice) const;
  [[nodiscard]] std::uint64_t least_virtual_time(const Slice* except) const;
  [[nodiscard]] int active_count() const;
  [[nodiscard]] bool is_outranked(const Slice& slice) const;
  [[nodiscard]] std::uint32_t credit_of(const Slice& slice) const;
  void set_grant(Slice& slice, abi::LeaseMode mode, std::uint64_t end, std::uint32_t credit);

  Tuning tuning_;
  Slice slices_[kMaxSlices];
  int end_ = 0;
  int holder_ = -1;          // the slice that has the lease, or −1
  bool rescuing_ = false;    // the lease was given out of turn
  int draining_ = -1;        // the slice that has work in flight after its lease, or −1
  std::uint64_t rescued_at_ = 0;   // when the last lease out of turn began
  std::uint64_t lease_end_ = 0;
  std::uint64_t drain_deadline_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t next_step_ = kNever;
  bool started_ = false;
};

}  // namespace carve::lease
