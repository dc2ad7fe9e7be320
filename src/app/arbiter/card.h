#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "abi/control.h"
#include "abi/page.h"
#include "app/arbiter/lease_time.h"
#include "app/arbiter/trace.h"
#include "base/result.h"
#include "lease/arbiter.h"

// One card's time: a thread that looks at the account pages of the card's slices, lets lease::Arbiter decide and
// writes the grants. It sleeps on the pages' doorbells; nothing a tenant writes makes it wait, stop or spin.
namespace carve::arbiter {

/// CLOCK_MONOTONIC in ns: the clock of all pages (PageClock::kMonotonic).
std::uint64_t now_ns();

/// Nothing of what a slot says counts any more.
void empty(abi::AccountSlot& slot);

class CardLoop {
 public:
  /// `trace_path`: empty, or the file that every decision goes to.
  static Result<std::unique_ptr<CardLoop>> start(std::string uuid, const std::string& trace_path);
  ~CardLoop();
  CardLoop(const CardLoop&) = delete;
  CardLoop& operator=(const CardLoop&) = delete;

  /// The pages have to stay mapped until remove(). Gives the slice's number on this card. What its processes
  /// measured before counts as paid for.
  ///   errors  kResourceExhausted: kMaxSlices slices are on the card
  Result<int> add(abi::GrantPage* grant, abi::AccountPage* account, const lease::Terms& terms);
  void remove(int slice);
  void set_terms(int slice, const lease::Terms& terms);
  /// A process of the slice is gone, or a new one begins here: empties its slot, whose measured time stays counted.
  void empty_slot(int slice, std::uint32_t slot);
  [[nodiscard]] std::uint64_t charged_ns(int slice);
  /// Leases out of turn that the slice was given, up to the largest number that fits.
  [[nodiscard]] std::uint32_t rescues(int slice);
  /// Since the slice was added, ms: the time in which it held the card's lease, and the excused time for which its work
  /// ran on after a lease.
  [[nodiscard]] abi::ControlLate lease_time(int slice);
  /// GPU time that the slice's processes, those that ended too, say they measured.
  [[nodiscard]] std::uint64_t busy_ns(int slice);

 private:
  struct Place {
    abi::GrantPage* grant = nullptr;
    abi::AccountPage* account = nullptr;
    // Modulo 2^64, as all sums of what tenants say.
    std::uint64_t retired_busy_ns = 0;  // of emptied slots
    std::uint64_t settled_busy_ns = 0;  // of before a take-over: charged by the arbiter before us
    std::uint32_t epoch_base = 0;       // where the page's epochs stood: they go on, whoever wrote them
    std::uint32_t published = 0;        // the decision that stands in the page
    LeaseTime lease_time = {};
  };
  explicit CardLoop(std::string uuid) : uuid_(std::move(uuid)), places_(lease::kMaxSlices) {}
  void run();
  std::uint64_t step();
  void publish(int slice, std::uint64_t now);
  void wait(std::uint64_t until);
  void kick();

  std::string uuid_;
  std::mutex mutex_;  // guards all below; held for a step, never while waiting
  lease::Arbiter machine_;
  std::vector<Place> places_;
  std::vector<lease::Observation> seen_ = std::vector<lease::Observation>(lease::kMaxSlices);
  Trace trace_;
  std::uint64_t last_ = 0;
  bool stop_ = false;
  std::uint32_t kicked_ = 0;  // futex word: something changed beside the pages
  // What the thread waits on, taken before the pages were read so that no ring is missed.
  std::vector<const std::uint32_t*> bells_;
  std::vector<std::uint32_t> rung_;
  std::thread thread_;
};

}  // namespace carve::arbiter
