#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/cluster/lease.h"

namespace carve::control {

/// Decides when a replica may take the Lease, when it must renew it, and until when it leads. Pure: time and the
/// server's answers are parameters. No wall clock is trusted. Another replica's Lease has expired when this replica
/// observed it unchanged for as long as the Lease says (a deleted Lease: when it was absent for that time). Our own
/// Lease counts from before the write that renewed it. So the old holder always stops before the next one begins,
/// regardless of their clocks.
class LeaderElection {
 public:
  struct Timing {
    Clock::Duration lease = std::chrono::seconds(10);
    Clock::Duration renew = std::chrono::seconds(2);   // between renewals, and between reads
    Clock::Duration margin = std::chrono::seconds(1);  // we stop this much early: two machines' clocks drift
  };
  enum class Move : std::uint8_t { kWait, kTake, kRenew };

  LeaderElection(std::string identity, Timing timing) : identity_(std::move(identity)), timing_(timing) {}

  /// The server's current Lease; an empty version: there is no Lease. It may be the one of a write with a lost answer:
  /// then this replica holds it from before that write, as if the answer had arrived.
  void seen(const codec::Lease& lease, Clock::Time now);
  [[nodiscard]] Move move(Clock::Time now) const;
  /// The Lease to write for that move. `floor`: epochs up to this one have been used. So have the epochs of all Leases
  /// that this replica observed, including deleted ones.
  [[nodiscard]] codec::Lease lease_for(Move move, std::uint64_t floor, const std::string& now_rfc3339) const;
  /// This write begins at `sent`; its answer may be lost.
  void sending(const codec::Lease& lease, Clock::Time sent);
  /// The server accepted the write. `sent`: a time before the write began.
  void wrote(const codec::Lease& lease, Clock::Time sent);
  /// Another replica leads, or the leader is unknown.
  void lose() { epoch_ = 0; }

  /// This replica holds the Lease now and will hold it at `deadline`.
  [[nodiscard]] bool holds_until(Clock::Time deadline, Clock::Time now) const;
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }  // 0: this replica does not hold the Lease
  [[nodiscard]] const codec::Lease& lease() const { return seen_; }

 private:
  static constexpr std::size_t kUnanswered = 8;  // more than a Lease's time has room for

  std::string identity_;
  Timing timing_;
  codec::Lease seen_;
  bool seen_once_ = false;
  Clock::Time seen_at_{};
  Clock::Time changed_{};  // when we last observed a change of seen_
  Clock::Time renewed_{};  // before our last accepted write
  std::uint64_t epoch_ = 0;
  struct Write {
    codec::Lease lease;
    Clock::Time sent;
  };
  std::vector<Write> unanswered_;  // since the last accepted write, oldest first; at most kUnanswered
  std::int64_t highest_ = 0;       // the highest epoch of all Leases that we observed
};

}  // namespace carve::control
