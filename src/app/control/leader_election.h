#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "codec/cluster/lease.h"

namespace carve::control {

/// When a replica may take the lease, must renew it, and until when it leads. Pure: time and what the server says are
/// parameters. Nobody's wall clock is believed: a lease of another has ended when it stood unchanged, before our own
/// eyes, for as long as it says (one that somebody deleted: when it was away for as long); our own is counted from
/// before the write that renewed it. So the one who held it always stops before the next one begins, whatever their
/// clocks show.
class LeaderElection {
 public:
  struct Timing {
    Clock::Duration lease = std::chrono::seconds(10);
    Clock::Duration renew = std::chrono::seconds(2);   // between renewals, and between looks
    Clock::Duration margin = std::chrono::seconds(1);  // by which we stop early: clocks of two machines run apart
  };
  enum class Move : std::uint8_t { kWait, kTake, kRenew };

  LeaderElection(std::string identity, Timing timing) : identity_(std::move(identity)), timing_(timing) {}

  /// What the server has now; "" as version: no Lease there.
  void seen(const codec::Lease& lease, Clock::Time now);
  [[nodiscard]] Move move(Clock::Time now) const;
  /// The Lease to write for that move. `floor`: epochs up to this one have been used; so are those that stood in a
  /// Lease before our own eyes, also where that Lease is gone.
  [[nodiscard]] codec::Lease lease_for(Move move, std::uint64_t floor, const std::string& now_rfc3339) const;
  /// The server took it. `sent`: before the write began.
  void wrote(const codec::Lease& lease, Clock::Time sent);
  /// Somebody else leads, or nobody knows.
  void lose() { epoch_ = 0; }

  /// We hold it, and shall until then.
  [[nodiscard]] bool holds_until(Clock::Time deadline, Clock::Time now) const;
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }  // 0: does not hold
  [[nodiscard]] const codec::Lease& lease() const { return seen_; }

 private:
  std::string identity_;
  Timing timing_;
  codec::Lease seen_;
  bool seen_once_ = false;
  Clock::Time seen_at_{};
  Clock::Time changed_{};  // when seen_ last was another one, as we noticed
  Clock::Time renewed_{};  // before our last write that counted
  std::uint64_t epoch_ = 0;
  std::int64_t highest_ = 0;  // epoch that ever stood in a Lease that we saw
};

}  // namespace carve::control
