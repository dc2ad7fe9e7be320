#pragma once

#include <map>
#include <string>

#include "base/clock.h"

namespace carve::agent {

/// How long an offence counts, and how much.
struct OffenceBounds {
  Clock::Duration forgotten_after = std::chrono::minutes(2);  // after the last offence of a user all are forgotten
  /// Debt with which the next slice of the same user begins, for each slice that was caught earlier.
  Clock::Duration each = std::chrono::milliseconds(500);
};

/// The number of slices of each user of this machine that were caught taking more compute than they may. In memory
/// only: a restarted agent begins with none. Pure: time is a parameter. Cost: O(log users). Users are forgotten, so
/// there are never more entries than slices that were caught within `forgotten_after`.
class Offences {
 public:
  /// Records that one more slice of this user was caught. An empty user is unknown and is not recorded.
  void note(const std::string& user, Clock::Time now, const OffenceBounds& bounds);
  /// A recorded slice is still in breach: the time until its user's offences are forgotten restarts now.
  void renew(const std::string& user, Clock::Time now);
  /// Seconds of debt with which a slice of this user begins.
  [[nodiscard]] double prior(const std::string& user, Clock::Time now, const OffenceBounds& bounds) const;
  [[nodiscard]] int count(const std::string& user, Clock::Time now, const OffenceBounds& bounds) const;
  void forget(Clock::Time now, const OffenceBounds& bounds);

 private:
  struct Past {
    int count = 0;
    Clock::Time last{};
  };
  std::map<std::string, Past> past_;
};

}  // namespace carve::agent
