#include "lease/gate.h"

namespace carve::lease {
namespace {

constexpr std::uint64_t kNsPerUs = 1000;
constexpr std::uint32_t kModeMask = 3;
constexpr std::uint32_t kModeBits = 2;
constexpr int kLooksAgain = 4;                         // by a process that announced at the same time as others
constexpr std::uint64_t kMostOfOne = 1'000'000'000;   // bound of another process's word, which may have any value

abi::LeaseMode mode_of(std::uint32_t word) { return static_cast<abi::LeaseMode>(word & kModeMask); }

std::uint64_t min_of(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }
std::uint64_t max_of(std::uint64_t a, std::uint64_t b) { return a > b ? a : b; }

}  // namespace

Passage Gate::enter_slowly(Lane& lane, std::uint64_t key, std::uint64_t stream, std::uint32_t word,
                           std::uint64_t estimate, std::uint64_t now) {
  Passage passage;
  passage.key = key;
  passage.estimate_ns = estimate;
  if (grant_->revoked.load_relaxed() != 0) {
    passage.verdict = Verdict::kRefuse;
    return passage;
  }
  if (word != lane.lease_word) {
    give_credit_back(lane, now);
    lane.lease_word = word;
  }
  if (lane.credit_ns < estimate) {
    const Verdict verdict = reserve(lane, word, estimate, now);
    if (verdict != Verdict::kGo) return wait(passage, verdict, word);
  }
  lane.credit_ns -= estimate;
  Segment& segment = lane.segment;
  if (segment.open && segment.stream != stream) {
    passage.close = true;
    passage.closed = segment;
    segment.open = false;
  }
  if (!segment.open) open_segment(lane, stream, &passage);
  return passage;
}

void Gate::open_segment(Lane& lane, std::uint64_t stream, Passage* passage) {
  lane.segment = Segment{};
  lane.segment.open = true;
  lane.segment.stream = stream;
  lane.seen_operations = 0;
  lane.segment_target_ns = mode_of(lane.lease_word) == abi::LeaseMode::kSolo ? tuning_.solo_marker_every
                                                                            : tuning_.marker_every;
  passage->begin_marker = true;
}

// Takes credit for this work and, if it fits, for the work that follows it up to the next marker.
Verdict Gate::reserve(Lane& lane, std::uint32_t word, std::uint64_t estimate, std::uint64_t now) {
  if (now > grant_->heartbeat_ns.load_relaxed() + abi::kHeartbeatMissedNs) {
    if (!local_bucket_allows(estimate, now)) return Verdict::kWaitCompletion;
    entry_->inflight_ns.fetch_add(estimate - lane.credit_ns);
    lane.credit_ns = estimate;
    return Verdict::kGo;
  }
  if (on_its_own()) __atomic_store_n(&on_its_own_, false, __ATOMIC_RELAXED);
  const std::uint64_t chunk =
      mode_of(word) == abi::LeaseMode::kSolo ? tuning_.solo_marker_every : tuning_.marker_every;
  const std::uint64_t wanted = max_of(chunk, estimate);
  const std::uint64_t more = wanted - lane.credit_ns;
  const std::uint64_t before = entry_->inflight_ns.fetch_add(more);
  // The lane's credit that no launch has used is not in flight.
  const std::uint64_t own = before > lane.credit_ns ? before - lane.credit_ns : 0;
  Fit fit = fits(own, word, now);
  for (int again = 0; fit == Fit::kNoCredit && again < kLooksAgain && goes_first(word); ++again) {
    fit = fits(own, word, now);
  }
  if (fit == Fit::kYes || fit == Fit::kLate) {
    if (wanted > __atomic_load_n(&longest_ns_, __ATOMIC_RELAXED)) {
      __atomic_store_n(&longest_ns_, wanted, __ATOMIC_RELAXED);
    }
    lane.credit_ns = wanted;
    // Behind late work only this work goes, because the known durations of such work are wrong.
    if (fit == Fit::kLate && wanted > estimate) {
      finish(wanted - estimate, now);
      lane.credit_ns = estimate;
    }
    if (before == 0 || fit == Fit::kLate || entry_->busy.load_relaxed() == 0) {
      entry_->anchor_ns.store_relaxed(now);
      entry_->busy.store_release(1);
    }
    return Verdict::kGo;
  }
  finish(more, now);
  return fit == Fit::kNoGrant ? Verdict::kWaitGrant : Verdict::kWaitCompletion;
}

// The credit belongs to the slice, and all its processes share it. Each process announces first and then sums, so at
// least one of two simultaneous processes sees the other.
Gate::InFlight Gate::in_flight(std::uint64_t own_ns) const {
  InFlight all{own_ns, entry_->anchor_ns.load_relaxed(), 0, 1};
  const std::uint32_t entries = entries_in_use();
  for (std::uint32_t i = 0; i < entries; ++i) {
    const abi::AccountEntry& other = account_->entries[i];
    if (&other == entry_) continue;
    const std::uint64_t ns = other.inflight_ns.load_seq_cst();
    all.longest_ns = max_of(all.longest_ns, other.max_op_us.load_relaxed() * kNsPerUs);
    if (ns == 0) continue;
    ++all.processes;
    all.ns += min_of(ns, kMostOfOne);
    // A process that has announced its work but has not launched it has no anchor for it: this work cannot be late.
    const bool works = other.busy.load_acquire() != 0;
    all.anchor_ns = max_of(all.anchor_ns, works ? other.anchor_ns.load_relaxed() : ~std::uint64_t{0});
  }
  return all;
}

// When processes announce at the same time and then see each other, one of them must go on: the first one in an order
// that begins with a different account entry at every grant.
bool Gate::goes_first(std::uint32_t word) const {
  const std::uint32_t entries = entries_in_use();
  if (entries < 2) return false;
  const auto own = static_cast<std::uint32_t>(entry_ - account_->entries);
  const std::uint32_t first = (word >> kModeBits) % entries;
  for (std::uint32_t at = first; at != own; at = at + 1 == entries ? 0 : at + 1) {
    if (own >= entries || account_->entries[at].inflight_ns.load_relaxed() != 0) return false;
  }
  return true;
}

std::uint32_t Gate::entries_in_use() const {
  const std::uint32_t entries = grant_->high_entry.load_relaxed();
  return entries < abi::kAccountEntries ? entries : static_cast<std::uint32_t>(abi::kAccountEntries);
}

Gate::Fit Gate::fits(std::uint64_t own_ns, std::uint32_t word, std::uint64_t now) {
  const abi::LeaseMode mode = mode_of(word);
  if (mode == abi::LeaseMode::kBlocked) return Fit::kNoGrant;
  InFlight before = in_flight(own_ns);
  // The processes of one slice usually do the same work, so this process uses what another one has measured.
  costs_.expect_of_unknown(before.longest_ns);
  // When the slice is alone on the card, each process has its own part of the credit. No other slice exists that the
  // sum could harm, and a process that replaces its completed work immediately would leave the other processes nothing.
  std::uint64_t credit = grant_->credit_us.load_relaxed() * kNsPerUs;
  if (mode == abi::LeaseMode::kSolo) {
    credit /= before.processes;
    before.ns = own_ns;
    before.anchor_ns = entry_->anchor_ns.load_relaxed();
  }
  // The time since the last observed progress of the card counts as work done, up to the next marker. If the next
  // marker is overdue, the estimate was too short, and the work is expected to take as long again as it is overdue.
  // This has a limit, because the work may wait for this very launch.
  const std::uint64_t marker = mode == abi::LeaseMode::kSolo ? tuning_.solo_marker_every : tuning_.marker_every;
  const std::uint64_t next = max_of(marker, max_of(__atomic_load_n(&longest_ns_, __ATOMIC_RELAXED), before.longest_ns));
  const std::uint64_t passed = before.ns != 0 && now > before.anchor_ns ? now - before.anchor_ns : 0;
  const bool late = passed > next + marker / 2 + tuning_.look_every;
  const bool too_late = late && passed - next > tuning_.late_limit * before.processes;  // they take turns on the card
  std::uint64_t left = before.ns > passed ? before.ns - passed : 0;
  if (late) left = max_of(passed - next, before.ns > next ? before.ns - next : 0);
  if (too_late) left = 0;
  const std::uint64_t finish = now + left;
  // Work that can only begin after the end of the lease waits.
  if (mode == abi::LeaseMode::kLease && finish >= grant_->end_ns.load_relaxed()) return Fit::kNoGrant;
  // The credit bounds the work in front of the new work, not the new work itself, so that long kernels can also queue.
  if (left > credit) return Fit::kNoCredit;
  return too_late ? Fit::kLate : Fit::kYes;
}

// While the arbiter is silent, the slice continues at the last granted rate, so that it neither loses the card nor
// takes all of it.
bool Gate::local_bucket_allows(std::uint64_t estimate, std::uint64_t now) {
  const std::uint64_t rate = min_of(grant_->rate_ppm.load_relaxed(), 1'000'000);
  const auto full = static_cast<std::int64_t>(50 * rate);  // 50 ms at this rate, in ns
  const std::uint64_t last = __atomic_exchange_n(&local_last_, now, __ATOMIC_RELAXED);
  if (!on_its_own()) {
    __atomic_store_n(&on_its_own_, true, __ATOMIC_RELAXED);
    __atomic_store_n(&local_tokens_, full, __ATOMIC_RELAXED);
  } else {
    const std::uint64_t passed = now > last ? min_of(now - last, 1'000'000'000) : 0;
    const auto gained = static_cast<std::int64_t>(passed / 1000 * rate / 1000);
    if (__atomic_add_fetch(&local_tokens_, gained, __ATOMIC_RELAXED) > full) {
      __atomic_store_n(&local_tokens_, full, __ATOMIC_RELAXED);
    }
  }
  if (__atomic_load_n(&local_tokens_, __ATOMIC_RELAXED) <= 0) return false;
  __atomic_sub_fetch(&local_tokens_, static_cast<std::int64_t>(estimate), __ATOMIC_RELAXED);
  return true;
}

Passage Gate::wait(Passage passage, Verdict verdict, std::uint32_t word) const {
  passage.verdict = verdict;
  passage.futex_value = word;
  passage.wait_ns = tuning_.longest_wait;
  if (verdict == Verdict::kWaitCompletion) {
    passage.wait_ns = tuning_.marker_every;
    return passage;
  }
  // An expired lease stays in the page until the arbiter decides: check again soon, and notify the arbiter.
  if (mode_of(word) != abi::LeaseMode::kBlocked) passage.wait_ns = tuning_.marker_every;
  return passage;
}

bool Gate::starts_waiting() {
  if (__atomic_fetch_add(&waiting_, 1, __ATOMIC_ACQ_REL) != 0) return false;
  entry_->want.store_release(1);
  return true;
}

void Gate::left_waiting() {
  if (__atomic_sub_fetch(&waiting_, 1, __ATOMIC_ACQ_REL) == 0) entry_->want.store_release(0);
}

bool Gate::leave(Lane& lane, const Passage& passage, Segment* out) {
  Segment& segment = lane.segment;
  segment.estimate_ns += passage.estimate_ns;
  ++segment.operations;
  std::uint32_t i = 0;
  while (i < segment.distinct && segment.keys[i] != passage.key) ++i;
  if (i < Segment::kKeys) {
    if (i == segment.distinct) segment.keys[segment.distinct++] = passage.key;
    ++segment.counts[i];
  }
  if (segment.estimate_ns < lane.segment_target_ns) return false;
  *out = segment;
  segment.open = false;
  // No close_stale() follows for a lane without an open segment. Credit that stays here would count as in flight until
  // the next launch, and the slice as busy. The segment itself is in flight, so this is never the end of the work.
  entry_->inflight_ns.fetch_sub(lane.credit_ns);
  lane.credit_ns = 0;
  return true;
}

bool Gate::close_stale(Lane& lane, std::uint64_t now, Segment* out) {
  if (!lane.segment.open) return false;
  if (lane.segment.operations != lane.seen_operations) {
    lane.seen_operations = lane.segment.operations;
    return false;
  }
  *out = lane.segment;
  lane.segment.open = false;
  give_credit_back(lane, now);
  return out->operations != 0;
}

void Gate::give_credit_back(Lane& lane, std::uint64_t now) {
  if (lane.credit_ns != 0) finish(lane.credit_ns, now);
  lane.credit_ns = 0;
}

bool Gate::completed(const Segment& segment, std::uint64_t begin_ns, std::uint64_t end_ns, std::uint64_t now) {
  if (end_ns > begin_ns) {
    learn(segment, end_ns - begin_ns);
    busy_total_ns_ += covered_.add(begin_ns, end_ns);  // segments of several streams overlap on the card
    entry_->busy_ns.store_release(busy_total_ns_);
  }
  entry_->anchor_ns.store_relaxed(now);
  const std::uint64_t longest = __atomic_load_n(&longest_ns_, __ATOMIC_RELAXED);
  __atomic_store_n(&longest_ns_, longest - longest / 4, __ATOMIC_RELAXED);
  return finish(segment.estimate_ns, now);
}

bool Gate::ended(const Segment& segment, std::uint64_t now) {
  const std::uint64_t anchor = entry_->anchor_ns.load_relaxed();
  Segment unknown = segment;
  unknown.distinct = 0;  // nothing is learnt from it
  return completed(unknown, min_of(anchor, now), now, now);
}

std::uint64_t Gate::longest_expected_ns(const Segment& segment) const {
  bool unknown = segment.distinct == 0;
  for (std::uint32_t i = 0; i < segment.distinct; ++i) unknown = unknown || !costs_.knows(segment.keys[i]);
  return unknown ? max_of(segment.estimate_ns, CostTable::kColdestNs) : segment.estimate_ns;
}

// Unmeasured work is not free: otherwise a process that always captures would use the card at no charge.
bool Gate::abandoned(const Segment& segment, std::uint64_t expected_ns, std::uint64_t now) {
  Segment unknown = segment;
  unknown.distinct = 0;  // nothing is learnt from it
  return completed(unknown, now - min_of(now, expected_ns), now, now);
}

std::uint64_t Gate::expected_end_ns(std::uint64_t now) const {
  return max_of(now, entry_->anchor_ns.load_relaxed() + entry_->inflight_ns.load_relaxed());
}

bool Gate::finish(std::uint64_t estimate_ns, std::uint64_t now) {
  if (entry_->inflight_ns.fetch_sub(estimate_ns) > estimate_ns) return false;
  entry_->anchor_ns.store_relaxed(now);
  entry_->busy.store_seq_cst(0);
  // A thread that launched in between saw `busy` still set and did not set it, so this thread does.
  if (entry_->inflight_ns.load_seq_cst() != 0) entry_->busy.store_seq_cst(1);
  return mode_of(grant_->lease.load_relaxed()) != abi::LeaseMode::kSolo;
}

// Each known kind of work in the segment gets its part of the measured time, in proportion to its estimate. Unknown
// kinds share the time that the known kinds leave.
void Gate::learn(const Segment& segment, std::uint64_t measured_ns) {
  std::uint64_t known_ns = 0;
  std::uint32_t cold_operations = 0;
  std::uint32_t remembered = 0;
  bool known[Segment::kKeys] = {};  // read once: another thread may forget a key at any moment
  for (std::uint32_t i = 0; i < segment.distinct; ++i) {
    known[i] = costs_.knows(segment.keys[i]);
    remembered += segment.counts[i];
    if (known[i]) known_ns += costs_.estimate_ns(segment.keys[i]) * segment.counts[i];
    else cold_operations += segment.counts[i];
  }
  // Uses the estimates of now: earlier segments may already have corrected the estimates of the launch.
  const std::uint64_t expected_ns = remembered == segment.operations ? known_ns : segment.estimate_ns;
  const std::uint64_t left_ns = measured_ns > known_ns ? measured_ns - known_ns : measured_ns / 8;
  for (std::uint32_t i = 0; i < segment.distinct; ++i) {
    const std::uint64_t key = segment.keys[i];
    if (!known[i]) {
      costs_.learn(key, max_of(left_ns / max_of(cold_operations, 1), 1));
    } else if (cold_operations == 0 && expected_ns != 0 && !on_its_own()) {
      // Without an arbiter other slices compute concurrently, and the time between our markers includes their time.
      const double ratio = static_cast<double>(measured_ns) / static_cast<double>(expected_ns);
      costs_.learn(key, static_cast<std::uint64_t>(static_cast<double>(costs_.estimate_ns(key)) * ratio));
    }
    const std::uint64_t longest_us = costs_.estimate_ns(key) / kNsPerUs;
    if (longest_us > entry_->max_op_us.load_relaxed()) {
      entry_->max_op_us.store_relaxed(static_cast<std::uint32_t>(min_of(longest_us, ~std::uint32_t{0})));
    }
  }
}

}  // namespace carve::lease
