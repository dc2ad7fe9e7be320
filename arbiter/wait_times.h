#pragma once

#include <cstdint>

#include "abi/control.h"
#include "lease/arbiter.h"

namespace carve::arbiter {

/// How long the launches of one slice waited for a lease of one card, as the arbiter sees it: from the step that found
/// a waiting launch and gave no lease, to the step that gave one or found none waiting. Pure: time is a parameter.
///   accuracy  one step of the arbiter (50 us while the slices' processes notify it)
class WaitTimes {
 public:
  /// One step of the arbiter; `now` (ns) never decreases.
  ///   grant   what the step decided for the slice
  ///   wants   a launch of the slice waits
  ///   capped  the slice has used up its rate (lease::Arbiter::exhausted)
  void look(std::uint64_t now, const lease::Grant& grant, bool wants, bool capped);
  /// Writes `waits`, `waited_ns` and `capped_ns`.
  void describe(abi::ControlCounters* out) const;

 private:
  void count(std::uint64_t ns);

  std::uint64_t waits_[abi::kWaitCounts] = {};
  std::uint64_t waited_ns_ = 0;
  std::uint64_t capped_ns_ = 0;
  std::uint64_t last_ = 0;
  std::uint64_t since_ = 0;  // when the present wait began
  bool waiting_ = false;     // at the last step
  bool blocked_ = false;     // …
  bool capped_ = false;      // … and a launch waited
};

}  // namespace carve::arbiter
