#include "arbiter/card.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "lease/observe.h"

namespace carve::arbiter {
namespace {

constexpr long kFutexWaitv = 449;              // Linux 5.16
constexpr std::uint32_t kFutex32 = 2;          // a 32-bit word, shared between processes
constexpr std::size_t kMostBells = 127;        // the kernel's 128, less the arbiter's own word
constexpr std::uint64_t kShortestStepNs = 50'000;   // also if a tenant rings all the time
constexpr std::uint64_t kBlindTickNs = 200'000;     // without futex_waitv
constexpr std::uint32_t kModeBits = 2;

struct FutexWaitv {
  std::uint64_t val;
  std::uint64_t uaddr;
  std::uint32_t flags;
  std::uint32_t reserved;
};

timespec timespec_of(std::uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

void sleep_until(std::uint64_t ns) {
  const timespec at = timespec_of(ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

void wake_all(const std::uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// GPU time waits for this thread, so it has a real-time priority. Without the permission for that it gets a better nice
// value.
void go_first() {
  const sched_param low{1};
  if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &low) != 0) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), -10);
  }
}

}  // namespace

std::uint64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Result<std::unique_ptr<CardLoop>> CardLoop::start(std::string uuid, const std::string& trace_path, Log& log) {
  CARVE_TRY(auto trace, Trace::create(trace_path, log));
  std::unique_ptr<CardLoop> loop(new CardLoop(std::move(uuid), std::move(trace)));
  loop->thread_ = Thread("carve-card", [raw = loop.get()] { raw->run(); });
  return loop;
}

CardLoop::~CardLoop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  kick();
  thread_.join();
}

void empty(abi::AccountEntry& entry) {
  entry.used_bytes.store_relaxed(0);
  entry.context_bytes.store_relaxed(0);
  entry.inflight_ns.store_relaxed(0);
  entry.busy_ns.store_relaxed(0);
  entry.anchor_ns.store_relaxed(0);
  entry.want.store_relaxed(0);
  entry.busy.store_relaxed(0);
  entry.max_op_us.store_relaxed(0);
  entry.host_pid.store_release(0);
  entry.instance.store_release(0);  // last: from now on a process of the slice may take the stock entry
}

Result<int> CardLoop::add(abi::GrantPage* grant, abi::AccountPage* account, const lease::Terms& terms) {
  const MutexLock lock(mutex_);
  const int slice = machine_.add(terms);
  if (slice < 0) {
    return fail(Code::kResourceExhausted,
                uuid_ + ": " + std::to_string(lease::kMaxSlices) + " slices are on this card, which is the maximum");
  }
  trace_.added(slice, terms);
  Place place{grant, account, 0, 0, grant->lease.load_relaxed() >> kModeBits, 0};
  place.settled_busy_ns = lease::observe(*account, grant->high_entry.load_relaxed(), 0, now_ns()).busy_ns;
  places_[static_cast<std::size_t>(slice)] = place;
  kick();
  return slice;
}

void CardLoop::remove(int slice) {
  const MutexLock lock(mutex_);
  machine_.remove(slice);
  trace_.removed(slice);
  Place& place = places_[static_cast<std::size_t>(slice)];
  if (place.grant->revoked.load_acquire() != 0) {
    const std::uint32_t epoch = place.epoch_base + place.published + 1;
    place.grant->lease.store_release(static_cast<std::uint32_t>(abi::LeaseMode::kBlocked) | epoch << kModeBits);
  } else {
    // The arbiter stops. The page stays valid until the next arbiter starts, and the clients use their local buckets
    // from now on.
    place.grant->heartbeat_ns.store_release(0);
  }
  wake_all(&place.grant->lease.raw);
  place = {};
  kick();
}

void CardLoop::set_terms(int slice, const lease::Terms& terms) {
  const MutexLock lock(mutex_);
  machine_.set_terms(slice, terms);
  trace_.changed(slice, terms);
  kick();
}

void CardLoop::empty_entry(int slice, std::uint32_t entry) {
  {
    const MutexLock lock(mutex_);  // no step counts the time twice or not at all
    Place& place = places_[static_cast<std::size_t>(slice)];
    abi::AccountEntry& emptied = place.account->entries[entry];
    place.retired_busy_ns += emptied.busy_ns.load_relaxed();
    empty(emptied);
  }
  kick();  // a neighbour may be waiting for the end of this process's work
}

std::uint64_t CardLoop::charged_ns(int slice) {
  const MutexLock lock(mutex_);
  return machine_.charged_ns(slice);
}

std::uint32_t CardLoop::rescues(int slice) {
  const MutexLock lock(mutex_);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(machine_.rescues(slice), UINT32_MAX));
}

abi::ControlLate CardLoop::lease_time(int slice) {
  const MutexLock lock(mutex_);
  const LeaseTime& time = places_[static_cast<std::size_t>(slice)].lease_time;
  const auto granted = static_cast<std::uint32_t>(time.granted_ns() / 1'000'000);
  return {granted == 0 ? 1 : granted, static_cast<std::uint32_t>(time.drained_ns() / 1'000'000)};
}

void CardLoop::describe(int slice, abi::ControlCounters* out) {
  const MutexLock lock(mutex_);
  const Place& place = places_[static_cast<std::size_t>(slice)];
  place.wait_times.describe(out);
  out->gated_launches = place.account->gated_launches.load_relaxed();
  out->refused_requests = place.account->refused_requests.load_relaxed();
  out->refused_bytes = place.account->refused_bytes.load_relaxed();
}

std::uint64_t CardLoop::busy_ns(int slice) {
  const MutexLock lock(mutex_);
  const Place& place = places_[static_cast<std::size_t>(slice)];
  const std::uint32_t entries = place.grant->high_entry.load_relaxed();
  return place.retired_busy_ns + lease::observe(*place.account, entries, 0, now_ns()).busy_ns;
}

void CardLoop::kick() {
  __atomic_fetch_add(&kicked_, 1, __ATOMIC_RELEASE);
  wake_all(&kicked_);
}

void CardLoop::run() {
  go_first();
  for (;;) {
    std::uint64_t next = 0;
    {
      const MutexLock lock(mutex_);
      if (stop_) return;
      next = step();
    }
    wait(next);
    const std::uint64_t earliest = last_ + kShortestStepNs;
    if (now_ns() < earliest) sleep_until(earliest);
  }
}

// One pass over all pages of the card. Returns the time at which the next pass is due at the latest.
std::uint64_t CardLoop::step() {
  bells_.assign(1, &kicked_);
  rung_.assign(1, __atomic_load_n(&kicked_, __ATOMIC_ACQUIRE));
  bool any = false;
  for (const Place& place : places_) {
    if (!place.account) continue;
    any = true;
    if (bells_.size() > kMostBells) continue;
    bells_.push_back(&place.account->doorbell.raw);
    rung_.push_back(place.account->doorbell.load_acquire());
  }
  const std::uint64_t now = now_ns();
  const auto end = static_cast<std::size_t>(machine_.slices_end());
  for (std::size_t i = 0; i < end; ++i) {
    const Place& place = places_[i];
    if (!place.account) continue;
    seen_[i] = lease::observe(*place.account, place.grant->high_entry.load_relaxed(), last_, now);
    seen_[i].busy_ns += place.retired_busy_ns - place.settled_busy_ns;
    places_[i].lease_time.look(now, machine_.grant(static_cast<int>(i)), seen_[i]);
  }
  machine_.step(now, seen_.data());
  trace_.stepped(now, machine_, seen_.data());
  for (std::size_t i = 0; i < end; ++i) {
    const int slice = static_cast<int>(i);
    if (!places_[i].grant) continue;
    publish(slice, now);
    places_[i].wait_times.look(now, machine_.grant(slice), seen_[i].want, machine_.exhausted(slice));
  }
  last_ = now;
  if (!any) return lease::kNever;
  return std::min(machine_.next_step_ns(), now + abi::kHeartbeatPeriodNs);
}

void CardLoop::publish(int slice, std::uint64_t now) {
  const lease::Grant& grant = machine_.grant(slice);
  Place& place = places_[static_cast<std::size_t>(slice)];
  abi::GrantPage& page = *place.grant;
  page.heartbeat_ns.store_relaxed(now);
  page.rate_ppm.store_relaxed(grant.rate_ppm);
  if (place.published == grant.epoch) return;
  place.published = grant.epoch;
  page.end_ns.store_relaxed(grant.end_ns);
  page.credit_us.store_relaxed(grant.credit_us);
  page.lease.store_release(static_cast<std::uint32_t>(grant.mode) | (place.epoch_base + grant.epoch) << kModeBits);
  wake_all(&page.lease.raw);
}

void CardLoop::wait(std::uint64_t until) {
  if (until <= now_ns()) return;
  FutexWaitv waiters[kMostBells + 1];
  const std::size_t count = std::min(bells_.size(), kMostBells + 1);
  for (std::size_t i = 0; i < count; ++i) {
    waiters[i] = {rung_[i], reinterpret_cast<std::uint64_t>(bells_[i]), kFutex32, 0};
  }
  const timespec at = timespec_of(until == lease::kNever ? now_ns() + 3'600'000'000'000 : until);
  if (syscall(kFutexWaitv, waiters, count, 0, &at, CLOCK_MONOTONIC) < 0 && errno == ENOSYS) {
    sleep_until(std::min(until, now_ns() + kBlindTickNs));
  }
}

}  // namespace carve::arbiter
