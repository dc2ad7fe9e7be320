#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace carve::agent {

/// The measures against a slice that takes more compute than it may, in this order.
enum class ComputeStep : std::uint8_t { kNone, kFreeze, kRevoke, kKill };

/// The amounts of excess compute that count as a breach. Debts are card time: 1 s is one second of the whole card. A
/// slice that takes p percent of the card more than it may reaches a debt of d seconds after d / (p - slack_points) ×
/// 100 seconds.
struct ComputeBounds {
  double slack_points = 10;  // percent of the card: possible error of the driver's averages
  /// Use beyond all that the arbiter charged, measured or by its clock. No honest slice reaches this debt.
  Clock::Duration account = std::chrono::milliseconds(200);
  /// Use beyond the leases and beyond the time for which an honest kernel ran past their end, while a neighbour gets
  /// less than it was granted and less than its guarantee. A tenant can inflate its account, but not its leases.
  Clock::Duration leases = std::chrono::milliseconds(200);
  /// The same, but no time past the leases is excused. One endless honest kernel reaches this too, so the step is never
  /// more than kFreeze.
  Clock::Duration overrun = std::chrono::seconds(5);
  /// Reached only while the debt continues to grow, so only by a slice that freezing does not stop.
  Clock::Duration revoke = std::chrono::milliseconds(1000);
  Clock::Duration kill = std::chrono::milliseconds(1600);
  Clock::Duration most = std::chrono::seconds(3);  // upper limit of each debt
  /// The debt that the slice itself must have before earlier offences of its user count.
  Clock::Duration own = std::chrono::milliseconds(150);
};

/// One round of one slice on one card, in percent of the card since the previous round.
struct ComputeRound {
  double used = 0;                // by the driver's account, all processes together
  double guarantee = 0;           // fixed: also its cap
  std::optional<double> charged;  // by the arbiter's account; nullopt: ignored (fixed)
  std::optional<double> granted;  // the slice held the card's lease; nullopt: not reported, or ignored
  double drained = 0;             // its work ran on past its leases, as far as an honest long kernel explains it
  bool starving = false;          // a neighbour gets less than it was granted, and less than its guarantee
};

/// The compute that a slice took beyond the allowed amount. The debt shrinks by at least slack_points per second while
/// the slice stays within that amount. Pure: time is a parameter. Cost of a round: O(rounds per second).
class ComputeDebt {
 public:
  /// One round; `now` never decreases. After a gap of more than a second the debts stay as they are, because the use
  /// during the gap is unknown.
  ///   prior  debt in seconds with which the slice begins, for earlier offences of its user; first round only
  ComputeStep look(const ComputeRound& round, Clock::Time now, const ComputeBounds& bounds, double prior = 0);
  /// Seconds of card time: the larger of the two debts that lead to more than kFreeze.
  [[nodiscard]] double owed() const;
  /// False: one endless honest kernel explains the last round's step. True: no honest slice causes it.
  [[nodiscard]] bool certain() const { return certain_; }

 private:
  /// What the round allows by each account, percent.
  struct Allowed {
    double by_leases = 0;   // the leases alone
    double excused = 0;     // the leases and the excused time past them
    double by_account = 0;  // all that the arbiter charged
  };
  static Allowed allowed_in(const ComputeRound& round);
  /// The maximum that a round of the last second allowed: the driver's account is late and a mean of up to a second.
  Allowed allowed_lately(const ComputeRound& round, Clock::Time now);

  bool seen_ = false;
  bool certain_ = false;
  Clock::Time last_{};
  std::deque<std::pair<Clock::Time, Allowed>> allowed_;  // of the last second
  double account_ = 0;
  double leases_ = 0;
  double overrun_ = 0;
  double taken_ = 0;  // by this slice itself, without `prior`
};

}  // namespace carve::agent
