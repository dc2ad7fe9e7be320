#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/control.h"
#include "abi/page.h"
#include "arbiter/lease_time.h"
#include "arbiter/trace.h"
#include "arbiter/wait_times.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"
#include "lease/arbiter.h"

// One card's time: a thread that reads the account pages of the card's slices, lets lease::Arbiter decide and writes
// the grants. It sleeps on the pages' doorbells. No value that a tenant writes makes it wait, stop or spin.
namespace carve::arbiter {

/// CLOCK_MONOTONIC in ns: the clock of all pages (PageClock::kMonotonic).
std::uint64_t now_ns();

/// Clears an account entry, so that its content no longer counts.
void empty(abi::AccountEntry& entry);

class CardLoop {
 public:
  /// `trace_path`: empty, or the file to which every decision is written.
  static Result<std::unique_ptr<CardLoop>> start(std::string uuid, const std::string& trace_path, Log& log);
  ~CardLoop();
  CardLoop(const CardLoop&) = delete;
  CardLoop& operator=(const CardLoop&) = delete;

  /// The pages must stay mapped until remove(). Returns the slice's number on this card. The time that its processes
  /// measured before counts as already charged.
  ///   errors  kResourceExhausted: kMaxSlices slices are on the card
  Result<int> add(abi::GrantPage* grant, abi::AccountPage* account, const lease::Terms& terms);
  void remove(int slice);
  void set_terms(int slice, const lease::Terms& terms);
  /// Empties the account entry of a process that has ended, or that starts with this entry. The time measured in the
  /// entry stays counted.
  void empty_entry(int slice, std::uint32_t entry);
  [[nodiscard]] std::uint64_t charged_ns(int slice);
  /// Number of leases out of turn that the slice received. The counter saturates.
  [[nodiscard]] std::uint32_t rescues(int slice);
  /// Since the slice was added, in ms: the time in which it held the card's lease, and the excused time for which its
  /// work ran on after a lease.
  [[nodiscard]] abi::ControlLate lease_time(int slice);
  /// Writes what was counted of the slice on this card.
  void describe(int slice, abi::ControlCounters* out);
  /// GPU time that the slice's processes report, ended processes included.
  [[nodiscard]] std::uint64_t busy_ns(int slice);

 private:
  struct Place {
    abi::GrantPage* grant = nullptr;
    abi::AccountPage* account = nullptr;
    // Modulo 2^64, as are all sums of figures that tenants report.
    std::uint64_t retired_busy_ns = 0;  // of emptied account entries
    std::uint64_t settled_busy_ns = 0;  // charged by the previous arbiter, before a take-over
    // The page's epoch at the take-over. The epochs continue from it.
    std::uint32_t epoch_base = 0;
    std::uint32_t published = 0;        // the decision that is in the page now
    LeaseTime lease_time = {};
    WaitTimes wait_times = {};
  };
  CardLoop(std::string uuid, Trace trace)
      : uuid_(std::move(uuid)), places_(lease::kMaxSlices), trace_(std::move(trace)) {}
  void run();
  std::uint64_t step() REQUIRES(mutex_);
  void publish(int slice, std::uint64_t now) REQUIRES(mutex_);
  void wait(std::uint64_t until);
  void kick();

  const std::string uuid_;
  Mutex mutex_;  // held for a step, never while waiting
  lease::Arbiter machine_ GUARDED_BY(mutex_);
  std::vector<Place> places_ GUARDED_BY(mutex_);
  std::vector<lease::Observation> seen_ GUARDED_BY(mutex_) = std::vector<lease::Observation>(lease::kMaxSlices);
  Trace trace_ GUARDED_BY(mutex_);
  std::uint64_t last_ = 0;  // used by the thread only
  bool stop_ GUARDED_BY(mutex_) = false;
  std::uint32_t kicked_ = 0;  // futex word: something other than the pages changed
  // Used by the thread only: the words that it waits on, and their values from before the pages were read, so that no
  // ring is missed.
  std::vector<const std::uint32_t*> bells_;
  std::vector<std::uint32_t> rung_;
  Thread thread_;
};

}  // namespace carve::arbiter
