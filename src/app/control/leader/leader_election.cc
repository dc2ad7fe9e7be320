#include "app/control/leader/leader_election.h"

#include <algorithm>

namespace carve::control {

void LeaderElection::seen(const codec::Lease& lease, Clock::Time now) {
  // An absent Lease may have existed between two reads. A Lease that exists has a version that never repeats.
  const bool may_have_changed = lease.version.empty() && now > seen_at_ + timing_.renew;
  if (!seen_once_ || may_have_changed || lease != seen_) changed_ = now;
  seen_once_ = true;
  seen_at_ = now;
  seen_ = lease;
  highest_ = std::max(highest_, lease.transitions);
  // Only our own write has this time of renewal in this term. A wall clock that was set back can repeat a time: the
  // earliest such write counts.
  const auto ours = std::find_if(unanswered_.begin(), unanswered_.end(), [&](const Write& one) {
    return one.lease.holder == lease.holder && one.lease.renewed == lease.renewed &&
           one.lease.transitions == lease.transitions;
  });
  if (ours != unanswered_.end()) wrote(lease, ours->sent);
  // Another replica took it, a person released it, or an earlier process with our identity wrote it.
  if (epoch_ != 0 && (lease.holder != identity_ || static_cast<std::uint64_t>(lease.transitions) != epoch_)) epoch_ = 0;
}

LeaderElection::Move LeaderElection::move(Clock::Time now) const {
  if (!seen_once_) return Move::kWait;
  if (epoch_ != 0) return now >= renewed_ + timing_.renew ? Move::kRenew : Move::kWait;
  // A deleted Lease does not say which replica held it, nor which replicas took and lost it since. Each of them has
  // stopped once the Lease would have expired.
  const bool gone = seen_.version.empty() && highest_ > 0;
  if (gone && now > seen_at_ + timing_.renew) return Move::kWait;  // read first
  const bool free = seen_.holder.empty() && !gone;
  const auto lasts = std::max<Clock::Duration>(std::chrono::seconds(seen_.seconds), timing_.lease);
  return free || now >= changed_ + lasts ? Move::kTake : Move::kWait;
}

codec::Lease LeaderElection::lease_for(Move move, std::uint64_t floor, const std::string& now_rfc3339) const {
  codec::Lease lease = seen_;
  lease.holder = identity_;
  lease.seconds = std::chrono::ceil<std::chrono::seconds>(timing_.lease).count();
  lease.renewed = now_rfc3339;
  if (move == Move::kTake) {
    lease.acquired = now_rfc3339;
    const auto used = static_cast<std::int64_t>(std::min<std::uint64_t>(floor, INT32_MAX - 1));
    lease.transitions = std::max({lease.transitions, highest_, used}) + 1;
  }
  return lease;
}

void LeaderElection::sending(const codec::Lease& lease, Clock::Time sent) {
  if (lease.renewed == seen_.renewed) return;  // a read could not tell it from the previous one
  if (unanswered_.size() == kUnanswered) unanswered_.erase(unanswered_.begin());
  unanswered_.push_back({lease, sent});
}

void LeaderElection::wrote(const codec::Lease& lease, Clock::Time sent) {
  seen_ = lease;
  highest_ = std::max(highest_, lease.transitions);
  changed_ = renewed_ = sent;
  epoch_ = static_cast<std::uint64_t>(lease.transitions);
  unanswered_.clear();
}

bool LeaderElection::holds_until(Clock::Time deadline, Clock::Time now) const {
  return epoch_ != 0 && std::max(deadline, now) <= renewed_ + timing_.lease - timing_.margin;
}

}  // namespace carve::control
