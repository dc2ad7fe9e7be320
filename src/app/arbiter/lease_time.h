#pragma once

#include <cstdint>

#include "lease/arbiter.h"

namespace carve::arbiter {

/// How long one slice held the card's lease, and how long its work ran on after a lease's end as far as an honest long
/// kernel explains it. The second line compares the driver's account with these two. Pure: time is a parameter.
///
/// A tenant writes `busy` and `busy_ns` of an observation. It cannot make the granted time larger with them. The
/// drained time is bounded: after the end of a lease work is excused only while the slice has been in flight ever
/// since, and either for kShortDrain or until it has reported kCompletions completions. A process that adds to busy_ns
/// all the time runs out of both within half a second; one that claims a single endless kernel is excused here, and is
/// bounded by ComputeBounds::overrun.
class LeaseTime {
 public:
  static constexpr std::uint64_t kShortDrain = 500'000'000;  // ns: several processes with kernels of some 20 ms each
  static constexpr std::uint32_t kCompletions = 16;          // changes of busy_ns that were seen since the lease ended

  /// One step of the arbiter; `now` (ns) never goes back.
  ///   grant  what stood in the slice's page since the step before
  ///   seen   what its pages say now
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
