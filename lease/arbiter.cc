#include "lease/arbiter.h"

namespace carve::lease {
namespace {

// The unit of virtual time is 1/128 ns of a slice of weight 1. The range lasts for years, and 1/100 of a card stays
// exact to the nanosecond.
constexpr std::uint64_t kVirtualScale = 128;
constexpr std::uint32_t kPpmPerHundredth = 10'000;
// A tenant may report any value: no single report counts for more than this.
constexpr std::uint64_t kLongestReport = 600'000'000'000;
constexpr std::int64_t kMostPresumed = 1'000 * static_cast<std::int64_t>(kLongestReport);
// A slice gets back at most 1/4 of the time that its work was in flight as not used. A holder may pause for 1/4 of the
// time that it works.
constexpr std::uint64_t kMostReturnedPart = 4;

constexpr std::uint64_t min_of(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }
constexpr std::uint64_t max_of(std::uint64_t a, std::uint64_t b) { return a > b ? a : b; }
constexpr std::uint64_t clamp(std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  return value < low ? low : value > high ? high : value;
}

/// Returns whole * part / sum without overflow: on a suspended machine a step can be minutes late.
std::uint64_t part_of(std::uint64_t whole, std::uint64_t part, std::uint64_t sum) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(whole) * part / sum);
}

/// Returns the weight of a slice's `overlapping` time when waiting time is divided among the slices: the time
/// multiplied by the number of other slices' processes, for which the slice had to wait.
std::uint64_t waits_ns(std::uint64_t overlapping, std::uint64_t own, std::uint64_t all) {
  return overlapping * (all - min_of(own, all));
}

std::int64_t signed_ns(std::uint64_t ns) { return static_cast<std::int64_t>(ns); }

/// The rate at which the slice's bucket of tokens fills, 1/100 of the card; 100: it has no cap.
std::uint32_t cap_of(const Terms& terms) {
  return terms.share == abi::ShareClass::kFixed ? terms.compute : terms.ceiling;
}

bool capped(const Terms& terms) { return cap_of(terms) < 100; }

/// Returns how long work was in flight within [last, now], from the states at both ends and the edge between them.
std::uint64_t worked_ns(bool was_busy, const Observation& seen, std::uint64_t last, std::uint64_t now) {
  const bool edge_known = seen.edge_ns >= last && seen.edge_ns <= now && seen.edge_ns != 0;
  if (was_busy && seen.busy) return now - last;
  if (was_busy) return edge_known ? seen.edge_ns - last : now - last;
  return seen.busy && edge_known ? now - seen.edge_ns : 0;
}

}  // namespace

int Arbiter::add(const Terms& terms) {
  int slice = 0;
  while (slice < end_ && slices_[slice].used) ++slice;
  if (slice == static_cast<int>(kMaxSlices)) return -1;
  const std::uint32_t epoch = slices_[slice].grant.epoch;  // never decreases, also for a reused number
  slices_[slice] = Slice{};
  slices_[slice].used = true;
  slices_[slice].terms = terms;
  slices_[slice].grant.epoch = epoch + 1;
  slices_[slice].grant.rate_ppm = terms.compute * kPpmPerHundredth;
  slices_[slice].tokens = full_bucket(slices_[slice]);
  slices_[slice].settled_at = last_;
  slices_[slice].virtual_time = least_virtual_time(&slices_[slice]);
  if (slice == end_) ++end_;
  next_step_ = 0;
  return slice;
}

void Arbiter::remove(int slice) {
  slices_[slice].used = false;
  slices_[slice].active = false;
  if (holder_ == slice) holder_ = -1;
  if (draining_ == slice) draining_ = -1;
  next_step_ = 0;
}

void Arbiter::set_terms(int number, const Terms& terms) {
  Slice& slice = slices_[number];
  const bool had_cap = capped(slice.terms);
  slice.terms = terms;
  slice.exhausted = false;  // the next step decides by the new terms
  if (const std::int64_t full = full_bucket(slice); !had_cap || slice.tokens > full) slice.tokens = full;
  next_step_ = 0;
}

void Arbiter::step(std::uint64_t now_ns, const Observation* observations) {
  const std::uint64_t now = started_ ? max_of(now_ns, last_) : now_ns;
  if (!started_) {
    last_ = now;  // no slice pays for the time before the first step
    for (int i = 0; i < end_; ++i) slices_[i].settled_at = now;
  }
  started_ = true;
  // A slice waited, so this step was due within a quantum. A longer gap is the arbiter's own (it was stopped or
  // starved). During the gap the slices continued at their last rates, and no slice owes another one for time without
  // an arbiter.
  if (now - last_ > abi::kHeartbeatMissedNs && best_waiting(last_) >= 0) forget_gap(now, observations);
  charge(now, observations);
  observe(now, observations);
  rule_holder(now);
  choose_next(now);
  publish(now);
  plan_next_step(now);
  last_ = now;
}

// The time measured during the gap is not settled later either, because each slice's measurement includes the time of
// the other slices.
void Arbiter::forget_gap(std::uint64_t now, const Observation* observations) {
  last_ = now - tuning_.quantum;
  for (int i = 0; i < end_; ++i) {
    Slice& slice = slices_[i];
    slice.busy_ns = observations[i].busy_ns;
    slice.presumed = 0;
    slice.worked = 0;
    slice.unused_turn = 0;
    slice.settled_at = last_;
  }
}

// Two slices with overlapping work shared the card. The hardware gives equal time slices to processes, so each slice is
// charged its part of the time that passed, and the sum never exceeds that time. A slice that holds the card while
// others wait is charged for that time, regardless of how it used the time and what it reports.
void Arbiter::charge(std::uint64_t now, const Observation* observations) {
  const std::uint64_t passed = now - last_;
  std::uint64_t worked[kMaxSlices];
  std::uint64_t sum = 0;
  std::uint64_t processes = 0;
  for (int i = 0; i < end_; ++i) {
    worked[i] = slices_[i].used ? worked_ns(slices_[i].was_busy, observations[i], last_, now) : 0;
    sum += worked[i];
    if (worked[i] != 0) processes += slices_[i].processes;
  }
  const std::uint64_t excess = sum > passed ? sum - passed : 0;
  std::uint64_t waits = 0;
  for (int i = 0; i < end_; ++i) waits += waits_ns(min_of(worked[i], excess), slices_[i].processes, processes);
  for (int i = 0; i < end_; ++i) {
    Slice& slice = slices_[i];
    if (!slice.used) continue;
    refill(slice, passed);
    const std::uint64_t others = waits_ns(min_of(worked[i], excess), slice.processes, processes);
    const std::uint64_t waited = waits == 0 ? 0 : part_of(excess, others, waits);
    const std::uint64_t used = worked[i] - min_of(worked[i], waited);
    charge_use(slice, used);
    charge_turn(slice, used);
    if (i == holder_ && best_waiting(last_) >= 0) {
      // The holder's process must wake up first, and the host needs time between two pieces of work.
      slice.slack = min_of(slice.slack + used / kMostReturnedPart, tuning_.idle_yield);
      // Time in which it waited for other slices' work that ran on is charged to those slices.
      const std::uint64_t unused = passed - worked[i];
      const std::uint64_t excused = min_of(unused, slice.slack);
      slice.slack -= excused;
      charge_turn(slice, unused - excused);
      slice.unused_turn += unused;
    }
    const std::uint64_t measured = observations[i].busy_ns - slice.busy_ns;
    slice.presumed += signed_ns(worked[i]) - signed_ns(min_of(measured, kLongestReport));
    if (slice.presumed < -kMostPresumed) slice.presumed = -kMostPresumed;  // a slice that never idles is never settled
    if (slice.presumed > kMostPresumed) slice.presumed = kMostPresumed;
    slice.worked += worked[i];
    if (!observations[i].busy) settle(slice, now);
  }
}

// Work in flight is charged by the wall clock; its true duration is known when it has ended. The difference is settled
// whenever nothing is in flight: the slice gets back a part of a charge that was too high, and work that began and
// ended between two steps is charged, up to the time that it can have taken.
void Arbiter::settle(Slice& slice, std::uint64_t now) {
  if (slice.presumed > 0) {
    // The tenant reports the measured time: a tenant that hides it gains at most this.
    const std::uint64_t most = min_of(slice.worked / kMostReturnedPart, slice.charged);
    const std::uint64_t back = min_of(static_cast<std::uint64_t>(slice.presumed), most);
    slice.charged -= back;
    slice.tokens += signed_ns(back);
  } else if (slice.presumed < 0) {
    const std::uint64_t passed = now - slice.settled_at;
    const std::uint64_t unseen = passed > slice.worked ? passed - slice.worked : 0;
    const std::uint64_t more = min_of(static_cast<std::uint64_t>(-slice.presumed), unseen);
    charge_use(slice, more);
    charge_turn(slice, more - min_of(more, slice.unused_turn));
  }
  slice.presumed = 0;
  slice.worked = 0;
  slice.unused_turn = 0;
  slice.settled_at = now;
}

void Arbiter::refill(Slice& slice, std::uint64_t elapsed) const {
  if (!capped(slice.terms)) return;
  // After one second the bucket is full, so a longer time adds nothing.
  const std::uint64_t useful = min_of(elapsed, 1'000'000'000);
  const std::uint32_t rate = cap_of(slice.terms);
  slice.tokens += signed_ns(useful / 100 * rate + useful % 100 * rate / 100);
}

void Arbiter::charge_use(Slice& slice, std::uint64_t nanoseconds) {
  slice.charged += nanoseconds;
  if (!capped(slice.terms)) return;
  slice.tokens -= signed_ns(nanoseconds);
  if (const std::int64_t full = full_bucket(slice); slice.tokens > full) slice.tokens = full;
}

void Arbiter::charge_turn(Slice& slice, std::uint64_t nanoseconds) const {
  slice.virtual_time += nanoseconds * kVirtualScale / weight(slice);
}

void Arbiter::observe(std::uint64_t now, const Observation* observations) {
  for (int i = 0; i < end_; ++i) {
    Slice& slice = slices_[i];
    if (!slice.used) continue;
    const Observation& seen = observations[i];
    const bool progressed = seen.busy_ns != slice.busy_ns;
    if (!seen.busy || progressed || !seen.want) slice.blocked_since = now;
    if (slice.was_busy && !seen.busy) {
      slice.idle_since = clamp(seen.edge_ns == 0 ? now : seen.edge_ns, last_, now);
    } else if (!seen.busy && progressed) {
      slice.idle_since = now;
    }
    if (seen.busy || progressed) slice.unused = 0;
    if (!seen.busy) slice.failed_rescues = 0;
    slice.busy_ns = seen.busy_ns;
    slice.was_busy = seen.busy;
    slice.processes = max_of(seen.processes, 1);
    slice.want = seen.want;
    slice.inflight = seen.inflight_ns;
    if (seen.want || seen.busy || progressed) {
      if (!slice.active) wake(slice);
      slice.last_active = now;
    } else if (slice.active && now - slice.last_active >= tuning_.idle_forget) {
      slice.active = false;
    }
    if (capped(slice.terms)) {
      // An exhausted slice waits until enough tokens for a lease have accumulated, or its leases would shrink to
      // nothing.
      if (slice.tokens <= 0) slice.exhausted = true;
      if (slice.tokens >= batch(slice)) slice.exhausted = false;
    }
  }
}

// A slice that slept cannot claim the time of its sleep, except for two leases of it, so that it is served soon.
void Arbiter::wake(Slice& slice) {
  const std::uint64_t floor = least_virtual_time(&slice);
  const std::uint64_t bonus = 2 * tuning_.quantum * kVirtualScale / weight(slice);
  slice.active = true;
  slice.virtual_time = max_of(slice.virtual_time, floor > bonus ? floor - bonus : 0);
}

void Arbiter::rule_holder(std::uint64_t now) {
  if (draining_ >= 0) {
    const Slice& slice = slices_[draining_];
    if (!slice.was_busy || slice.inflight <= tuning_.early_handoff || now >= drain_deadline_) draining_ = -1;
  }
  if (holder_ < 0) return;
  Slice& holder = slices_[holder_];
  if (!eligible(holder)) return begin_drain(now);
  if (rescuing_ && now < lease_end_ && (holder.was_busy || holder.want)) return;  // the rescue is short and was due
  int best = now >= lease_end_ ? stuck_slice(now) : -1;
  if (now >= lease_end_) turn_ends(holder, now);
  if (best < 0 || best == holder_) best = best_candidate(now);
  if (best < 0 || best == holder_) {
    if (now < lease_end_) return;
    lease_end_ = end_of_lease(holder, now);
    rescuing_ = false;
    return;
  }
  const bool outranked = slices_[best].terms.priority < holder.terms.priority;
  const bool idle = !holder.was_busy && !holder.want && now - holder.idle_since >= tuning_.idle_yield;
  // The holder was alone until now and its lease has no end: a lease of normal length would have ended, so the newcomer
  // starts now.
  if (lease_end_ == kNever) lease_end_ = now;
  if (now >= lease_end_ || outranked || idle) begin_drain(now);
}

// A slice that repeatedly asks for a lease and does not use it is served only when no other slice asks, and from time
// to time to find out whether it works again. Otherwise a process that was stopped while it waited would cost its
// neighbours its share.
void Arbiter::turn_ends(Slice& slice, std::uint64_t now) const {
  if (slice.was_busy || !slice.want) return;
  if (++slice.unused >= tuning_.unused_leases) slice.passed_over_until = now + tuning_.pass_over;
}

void Arbiter::begin_drain(std::uint64_t now) {
  const Slice& slice = slices_[holder_];
  // Work that hung before the rescue lease and still hangs after it delays no other slice.
  if (slice.was_busy && slice.inflight > tuning_.early_handoff && !rescuing_) {
    draining_ = holder_;
    drain_deadline_ = now + tuning_.drain_timeout;
  }
  holder_ = -1;
}

void Arbiter::choose_next(std::uint64_t now) {
  if (holder_ >= 0 || draining_ >= 0) return;
  const int stuck = stuck_slice(now);
  int next = stuck >= 0 ? stuck : best_candidate(now);
  if (next < 0 && used_count() == 1) next = only_slice();  // alone on the card: it need not ask
  if (next >= 0) begin_lease(next, now, stuck >= 0);
}

void Arbiter::begin_lease(int next, std::uint64_t now, bool rescue) {
  Slice& slice = slices_[next];
  holder_ = next;
  rescuing_ = rescue;
  lease_end_ = end_of_lease(slice, now);
  if (rescue) {
    lease_end_ = min_of(lease_end_, now + rescue_of(slice).length);
    rescued_at_ = now;
    ++slice.rescues;
    ++slice.failed_rescues;
  }
  slice.blocked_since = now;
  slice.idle_since = now;
  slice.slack = tuning_.idle_yield;
}

// Work in flight can wait for work that may not be launched yet (a spin-wait between two streams). A slice that is
// blocked for long without progress gets a short lease out of turn, a rescue lease, and pays for it. Of several such
// slices the highest class goes first, and within a class the slice with the least virtual time.
int Arbiter::stuck_slice(std::uint64_t now) const {
  int best = -1;
  for (int i = 0; i < end_; ++i) {
    const Slice& slice = slices_[i];
    if (!stuck(slice) || rescue_of(slice).due > now) continue;
    if (best < 0 || goes_before(slice, slices_[best], now)) best = i;
  }
  return best;
}

bool Arbiter::stuck(const Slice& slice) const { return slice.used && slice.was_busy && slice.want && eligible(slice); }

// All rescue leases together take at most a small part of the card. Next to active slices of a higher class they take a
// smaller part, and nothing that those slices were promised. While rescues are unsuccessful (the work in flight was
// never seen to end), the pause before each one is twice as long as the previous pause.
Arbiter::Rescue Arbiter::rescue_of(const Slice& slice) const {
  std::uint64_t promised = 0;
  bool outranked = false;
  for (int i = 0; i < end_; ++i) {
    const Slice& other = slices_[i];
    if (!other.used || !other.active || other.terms.priority >= slice.terms.priority) continue;
    outranked = true;
    promised += other.terms.share == abi::ShareClass::kBestEffort ? 0 : other.terms.compute;
  }
  if (outranked && promised >= 100) return {kNever, 0};
  const std::uint32_t doublings =
      slice.failed_rescues < tuning_.rescue_doublings ? slice.failed_rescues : tuning_.rescue_doublings;
  const std::uint64_t pause = tuning_.rescue_after << (outranked ? doublings : 0);
  const std::uint64_t length = outranked ? tuning_.outranked_rescue : tuning_.quantum;
  const std::uint64_t part = outranked ? min_of(tuning_.outranked_percent, 100 - promised) : tuning_.rescue_percent;
  const std::uint64_t due = slice.blocked_since + pause;
  return {rescued_at_ == 0 ? due : max_of(due, rescued_at_ + length * 100 / part), length};
}

std::uint64_t Arbiter::end_of_lease(const Slice& slice, std::uint64_t now) const {
  // Next to a slice of a much larger weight, a slice of a small weight gets shorter leases more often: one full lease
  // more or less per second would be a visible part of its share.
  std::uint64_t heaviest = weight(slice);
  for (int i = 0; i < end_; ++i) {
    if (slices_[i].used && slices_[i].active) heaviest = max_of(heaviest, weight(slices_[i]));
  }
  const std::uint64_t proportional = tuning_.quantum * weight(slice) * 4 / heaviest;
  const std::uint64_t length = clamp(proportional, tuning_.quantum * 2 / 3, tuning_.quantum);
  if (!capped(slice.terms)) return now + length;
  // During the lease the tokens decrease at (1 − rate).
  const std::uint64_t tokens = slice.tokens > 0 ? static_cast<std::uint64_t>(slice.tokens) : 0;
  return now + clamp(tokens * 100 / (100 - cap_of(slice.terms)), 1, length);
}

void Arbiter::publish(std::uint64_t now) {
  const bool alone = active_count() <= 1;
  for (int i = 0; i < end_; ++i) {
    Slice& slice = slices_[i];
    if (!slice.used) continue;
    slice.grant.rate_ppm = static_cast<std::uint32_t>(min_of(weight(slice), 100)) * kPpmPerHundredth;
    if (i != holder_) {
      set_grant(slice, abi::LeaseMode::kBlocked, 0, 0);
    } else if (alone && !capped(slice.terms)) {
      lease_end_ = kNever;
      if (is_outranked(slice)) {
        set_grant(slice, abi::LeaseMode::kLease, kNever, credit_of(slice));
      } else {
        set_grant(slice, abi::LeaseMode::kSolo, kNever, tuning_.solo_credit_us);
      }
    } else {
      if (lease_end_ == kNever) lease_end_ = now + tuning_.quantum;
      set_grant(slice, abi::LeaseMode::kLease, lease_end_, credit_of(slice));
    }
  }
}

void Arbiter::set_grant(Slice& slice, abi::LeaseMode mode, std::uint64_t end, std::uint32_t credit) {
  Grant& grant = slice.grant;
  if (grant.mode == mode && grant.end_ns == end && grant.credit_us == credit) return;
  grant.mode = mode;
  grant.end_ns = end;
  grant.credit_us = credit;
  ++grant.epoch;
}

void Arbiter::plan_next_step(std::uint64_t now) {
  std::uint64_t next = kNever;
  if (draining_ >= 0) {
    // The next lease waits for this work: the next step is at its expected end, and steps are frequent when it is late.
    constexpr std::uint64_t kLook = 100'000;
    const std::uint64_t left = slices_[draining_].inflight;
    next = min_of(drain_deadline_, now + (left > tuning_.early_handoff ? left - tuning_.early_handoff : kLook));
  }
  const bool contended = active_count() > 1;
  if (holder_ >= 0 && best_waiting(now) >= 0) {
    // The holder itself may be inactive for long: it got the card when no slice wanted it.
    const Slice& holder = slices_[holder_];
    next = min_of(next, lease_end_);
    if (!holder.was_busy && !holder.want) next = min_of(next, holder.idle_since + tuning_.idle_yield);
  }
  for (int i = 0; i < end_; ++i) {
    const Slice& slice = slices_[i];
    if (!slice.used || !slice.active) continue;
    if (!slice.was_busy && !slice.want) next = min_of(next, slice.last_active + tuning_.idle_forget);
    if (i == holder_) {
      if (lease_end_ != kNever) next = min_of(next, lease_end_);
      if (contended && !slice.was_busy && !slice.want) next = min_of(next, slice.idle_since + tuning_.idle_yield);
    } else if (slice.exhausted) {
      const auto lacking = static_cast<std::uint64_t>(batch(slice) - slice.tokens);
      next = min_of(next, now + lacking * 100 / max_of(cap_of(slice.terms), 1) + 1);
    } else if (stuck(slice)) {
      const std::uint64_t due = rescue_of(slice).due;
      next = min_of(next, holder_ >= 0 && due != kNever ? max_of(due, lease_end_) : due);
    }
  }
  next_step_ = next <= now ? now + 1000 : next;
}

int Arbiter::best_candidate(std::uint64_t now) const {
  int best = -1;
  for (int i = 0; i < end_; ++i) {
    const Slice& slice = slices_[i];
    if (!slice.used || !eligible(slice)) continue;
    // A holder between two launches is still a candidate; it yields after `idle_yield`, in rule_holder().
    const bool competes = slice.want || (i == holder_ && slice.active);
    if (competes && (best < 0 || goes_before(slice, slices_[best], now))) best = i;
  }
  if (best == holder_ && best >= 0) {
    // If it neither works nor waits, a waiting slice may have the card after that pause.
    const Slice& holder = slices_[best];
    if (!holder.was_busy && !holder.want) {
      const int other = best_waiting(now);
      if (other >= 0) return other;
    }
  }
  return best;
}

int Arbiter::best_waiting(std::uint64_t now) const {
  int best = -1;
  for (int i = 0; i < end_; ++i) {
    const Slice& slice = slices_[i];
    if (!slice.used || i == holder_ || !slice.want || !eligible(slice)) continue;
    if (best < 0 || goes_before(slice, slices_[best], now)) best = i;
  }
  return best;
}

bool Arbiter::goes_before(const Slice& a, const Slice& b, std::uint64_t now) const {
  if ((a.passed_over_until > now) != (b.passed_over_until > now)) return b.passed_over_until > now;
  if (a.terms.priority != b.terms.priority) return a.terms.priority < b.terms.priority;
  return a.virtual_time < b.virtual_time;
}

bool Arbiter::eligible(const Slice& slice) const { return !slice.exhausted; }

std::uint64_t Arbiter::weight(const Slice& slice) const {
  // A slice without a guarantee gets what the others leave, but always a little.
  if (slice.terms.share == abi::ShareClass::kBestEffort) return 1;
  return max_of(slice.terms.compute, 1);
}

std::uint64_t Arbiter::least_virtual_time(const Slice* except) const {
  std::uint64_t least = kNever;
  for (int i = 0; i < end_; ++i) {
    if (slices_[i].used && slices_[i].active && &slices_[i] != except) least = min_of(least, slices_[i].virtual_time);
  }
  return least == kNever ? except->virtual_time : least;
}

int Arbiter::active_count() const {
  int count = 0;
  for (int i = 0; i < end_; ++i) count += slices_[i].used && slices_[i].active;
  return count;
}

int Arbiter::used_count() const {
  int count = 0;
  for (int i = 0; i < end_; ++i) count += slices_[i].used;
  return count;
}

int Arbiter::only_slice() const {
  for (int i = 0; i < end_; ++i) {
    if (slices_[i].used && !capped(slices_[i].terms)) return i;
  }
  return -1;
}

std::int64_t Arbiter::full_bucket(const Slice& slice) const {
  return signed_ns(tuning_.token_burst / 100 * cap_of(slice.terms));
}

std::int64_t Arbiter::batch(const Slice& slice) const {
  return signed_ns(tuning_.quantum / 100 * cap_of(slice.terms));
}

// A slice of a higher class that sleeps now may wake up at any time. It must not wait for the work that a slice that is
// alone may have in flight.
bool Arbiter::is_outranked(const Slice& slice) const {
  for (int i = 0; i < end_; ++i) {
    if (slices_[i].used && slices_[i].terms.priority < slice.terms.priority) return true;
  }
  return false;
}

std::uint32_t Arbiter::credit_of(const Slice& slice) const {
  if (slice.terms.priority != abi::PriorityClass::kOffline) return tuning_.credit_us;
  for (int i = 0; i < end_; ++i) {
    if (slices_[i].used && slices_[i].terms.priority == abi::PriorityClass::kOnline) return tuning_.offline_credit_us;
  }
  return tuning_.credit_us;
}

}  // namespace carve::lease
