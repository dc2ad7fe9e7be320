#pragma once

#include <cstdint>

#include "lease/arbiter.h"

namespace carve::arbiter {

/// The time in which one slice held the card's lease, and the time for which its work ran on after a lease, as far as
/// an honest long kernel explains it. The second line compares the driver's account with these two figures. Pure: time
/// is a parameter.
///
/// A tenant writes `busy` and `busy_ns` of an observation. It cannot increase the granted time with them. The drained
/// time is bounded: after the end of a lease work is excused only while the slice stays in flight without a pause, and
/// only for kShortDrain or until the slice has reported kCompletions completions. A process that constantly adds to
/// busy_ns exhausts both within half a second. A process that pretends a single endless kernel is excused here;
/// ComputeBounds::overrun bounds it.
class LeaseTime {
 public:
  static constexpr std::uint64_t kShortDrain = 500'000'000;  // ns: several processes with kernels of about 20 ms each
  static constexpr std::uint32_t kCompletions = 16;          // observed changes of busy_ns since the lease ended

  /// One step of the arbiter; `now` (ns) never decreases.
  ///   grant  the content of the slice's grant page since the previous step
  ///   seen   the current content of its account pages
  void look(std::uint64_t now, const lease::Grant& grant, const lease::Observation& seen);
  [[nodiscard]] std::uint64_t granted_ns() const { return granted_; }
  [[nodiscard]] std::uint64_t drained_ns() const { return drained_; }

 private:
  std::uint64_t last_ = 0;
  std::uint64_t ended_ = 0;  // when the last lease ended
  std::uint64_t granted_ = 0;
  std::uint64_t drained_ = 0;
  std::uint64_t busy_ns_ = 0;      // at the last step
  std::uint32_t completions_ = 0;  // since ended_
  bool draining_ = false;          // in flight at every step since the lease
};

}  // namespace carve::arbiter
