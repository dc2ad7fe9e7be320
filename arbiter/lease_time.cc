#include "arbiter/lease_time.h"

#include <algorithm>

namespace carve::arbiter {

void LeaseTime::look(std::uint64_t now, const lease::Grant& grant, const lease::Observation& seen) {
  const std::uint64_t last = last_ == 0 ? now : last_;
  const bool completed = seen.busy_ns != busy_ns_;
  last_ = now;
  busy_ns_ = seen.busy_ns;
  std::uint64_t until = last;  // the lease was held from `last` to here
  if (grant.mode != abi::LeaseMode::kBlocked) until = grant.end_ns == 0 ? now : std::clamp(grant.end_ns, last, now);
  granted_ += until - last;
  if (until > last) {
    ended_ = until;
    completions_ = 0;
    draining_ = true;
  } else if (completed) {
    ++completions_;
  }
  const bool excused = now - ended_ <= kShortDrain || completions_ <= kCompletions;
  if (draining_ && excused) drained_ += now - until;
  draining_ = draining_ && seen.busy;
}

}  // namespace carve::arbiter
