#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace carve {

/// What is done to a slice that takes more compute than it may, in this order.
enum class ComputeStep : std::uint8_t { kNone, kFreeze, kRevoke, kKill };

/// When more compute than is allowed counts as a breach. Debts are card time: one second of the whole card is a second.
/// A slice that takes p per cent of the card more than it may reaches a debt d after d / (p - slack_points) × 100.
struct ComputeBounds {
  double slack_points = 10;  // per cent of the card above what is allowed that the driver's averages may be wrong by
  /// Beyond all that the arbiter accounts, measured or by its clock: no honest slice gets there.
  Clock::Duration account = std::chrono::milliseconds(200);
  /// Beyond the leases and what an honest kernel ran past their end, while a neighbour gets less than it was granted
  /// and less than its guarantee. A tenant can make its account large, but not its leases.
  Clock::Duration leases = std::chrono::milliseconds(200);
  /// The same, without any excuse. One endless kernel looks like that, an honest one too: never more than kFreeze.
  Clock::Duration overrun = std::chrono::seconds(5);
  /// Reached only while the debt goes on growing, so only by a slice that freezing does not stop.
  Clock::Duration revoke = std::chrono::milliseconds(1000);
  Clock::Duration kill = std::chrono::milliseconds(1600);
  Clock::Duration most = std::chrono::seconds(3);  // no debt grows beyond
  /// What a slice has to take itself before the offences of its user count.
  Clock::Duration own = std::chrono::milliseconds(150);
};

/// One round of one slice on one card, in per cent of the card since the round before.
struct ComputeRound {
  double used = 0;                // by the driver's account, all processes together
  double guarantee = 0;           // fixed: also its cap
  std::optional<double> charged;  // by the arbiter's account; nullopt: it does not count (fixed)
  std::optional<double> granted;  // the slice held the card's lease; nullopt: not told, or it does not count
  double drained = 0;             // its work ran on past its leases, as far as an honest kernel explains it
  bool starving = false;          // a neighbour gets less than it was granted, and less than its guarantee
};

/// The compute that a slice took beyond what it may; it shrinks by slack_points per second when the slice keeps to what
/// it may. Pure: time is a parameter. Cost of a round: O(rounds per second).
class ComputeDebt {
 public:
  /// One round; `now` grows. After a gap of more than a second only what was owed stays: what happened in between is
  /// not known.
  ///   prior  debt in seconds that the slice begins with, for what its user did before; counts in the first round only
  ComputeStep look(const ComputeRound& round, Clock::Time now, const ComputeBounds& bounds, double prior = 0);
  /// Seconds of the card, the larger of the two accounts that lead beyond kFreeze.
  [[nodiscard]] double owed() const;
  /// The last round's step was for what no honest slice does; false: one endless kernel explains it.
  [[nodiscard]] bool certain() const { return certain_; }

 private:
  /// What the round allows by each account, per cent.
  struct Allowed {
    double by_leases = 0;   // the leases alone
    double excused = 0;     // and what ran on past them
    double by_account = 0;  // all that the arbiter knows of
  };
  static Allowed allowed_in(const ComputeRound& round);
  /// The most that any round of the last second allows: the driver's account is a mean of up to a second, and late.
  Allowed allowed_lately(const ComputeRound& round, Clock::Time now);

  bool seen_ = false;
  bool certain_ = false;
  Clock::Time last_{};
  std::deque<std::pair<Clock::Time, Allowed>> allowed_;  // of the last second
  double account_ = 0;
  double leases_ = 0;
  double overrun_ = 0;
  double taken_ = 0;  // by this slice itself
};

}  // namespace carve
