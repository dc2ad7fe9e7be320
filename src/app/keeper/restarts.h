#pragma once

#include <optional>

#include "base/clock.h"
#include "port/kept_agent.h"

namespace carve::keeper {

/// When an agent that ended is followed by another. At once after a single crash; later and later while they crash
/// soon after their start; not at all where the keeper could only hide that nothing works. Pure.
class Restarts {
 public:
  static constexpr Clock::Duration kProven = std::chrono::seconds(10);  // served so long: the next crash is a first one
  static constexpr Clock::Duration kFirstPause = std::chrono::milliseconds(25);  // before the second in a row, doubled
  static constexpr Clock::Duration kLongestPause = std::chrono::milliseconds(250);
  static constexpr Clock::Duration kWithoutService = std::chrono::seconds(30);
  static constexpr int kMostInARow = 100;  // about a minute of agents that serve and crash at once

  /// The agent that lives now answers the kubelet.
  void served(Clock::Time now);
  /// It has ended.
  ///   returns  the pause before the next one; nullopt: none follows. Not after an end in order, not after one that
  ///            never served when none before it had (wrong flags: nothing to hold), not after 30 s of agents of which
  ///            none came to serve, not after the hundredth crash in a row
  [[nodiscard]] std::optional<Clock::Duration> pause_after(const ProcessEnd& end, Clock::Time now);

 private:
  std::optional<Clock::Time> serving_since_;  // of the one that lives
  std::optional<Clock::Time> last_served_;    // by any before it
  int in_a_row_ = 0;
};

}  // namespace carve::keeper
