#pragma once

#include <map>
#include <string>

#include "base/clock.h"

namespace carve {

/// How long an offence counts, and for how much.
struct OffenceBounds {
  Clock::Duration forgotten_after = std::chrono::minutes(2);  // of the last one: then all are
  /// Debt that the next slice of the same user begins with, for each slice that was caught before.
  Clock::Duration each = std::chrono::milliseconds(500);
};

/// What the users of this machine did before: how many of a user's slices were caught taking compute that they may not.
/// In memory only: an agent that starts begins with none. Pure: time is a parameter. Cost: O(log users); users are
/// forgotten, so there are no more entries than slices were caught within `forgotten_after`.
class Offences {
 public:
  /// One more slice of this user was caught; an empty user is nobody known and is not noted.
  void note(const std::string& user, Clock::Time now, const OffenceBounds& bounds);
  /// A slice that was noted is still in breach: the time after which its user's offences are forgotten begins now.
  void renew(const std::string& user, Clock::Time now);
  /// Seconds of debt that a slice of this user begins with.
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

}  // namespace carve
