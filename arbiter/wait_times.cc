#include "arbiter/wait_times.h"

#include <algorithm>
#include <iterator>

namespace carve::arbiter {

void WaitTimes::look(std::uint64_t now, const lease::Grant& grant, bool wants, bool capped) {
  if (capped_) capped_ns_ += now - last_;
  const bool blocked = grant.mode == abi::LeaseMode::kBlocked;
  const bool waiting = wants && blocked;
  if (waiting && !waiting_) since_ = now;
  if (!waiting && waiting_) count(now - since_);
  // The step that found the waiting launch also gave the lease.
  if (wants && !waiting_ && blocked_ && !blocked) count(0);
  waiting_ = waiting;
  blocked_ = blocked;
  capped_ = waiting && capped;
  last_ = now;
}

void WaitTimes::count(std::uint64_t ns) {
  const auto* end = std::lower_bound(std::begin(abi::kWaitEndsNs), std::end(abi::kWaitEndsNs), ns);
  ++waits_[end - std::begin(abi::kWaitEndsNs)];
  waited_ns_ += ns;
}

void WaitTimes::describe(abi::ControlCounters* out) const {
  std::copy(std::begin(waits_), std::end(waits_), std::begin(out->waits));
  out->waited_ns = waited_ns_;
  out->capped_ns = capped_ns_;
}

}  // namespace carve::arbiter
