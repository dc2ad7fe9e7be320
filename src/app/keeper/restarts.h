#pragma once

#include <optional>

#include "base/clock.h"
#include "port/kept_agent.h"

namespace carve::keeper {

/// Decides when the keeper starts another agent after one has ended: immediately after a single crash; with growing
/// pauses while agents crash soon after their start; never when a restart would only hide that nothing works. Pure.
class Restarts {
 public:
  // A crash after this long in service is the first in a row.
  static constexpr Clock::Duration kProven = std::chrono::seconds(10);
  static constexpr Clock::Duration kFirstPause =
      std::chrono::milliseconds(25);  // after the second crash in a row; doubles
  static constexpr Clock::Duration kLongestPause = std::chrono::milliseconds(250);
  static constexpr Clock::Duration kWithoutService = std::chrono::seconds(30);
  static constexpr int kMostInARow = 100;  // about a minute of agents that crash as soon as they serve

  /// The running agent answers the kubelet.
  void served(Clock::Time now);
  /// The running agent has ended.
  ///   returns  the pause before the next agent; nullopt: no agent is started, because this one ended in order (exit
  ///            code 0); or no agent has ever served (for example wrong flags); or no agent has served for 30 s; or
  ///            this was more than the hundredth crash in a row
  [[nodiscard]] std::optional<Clock::Duration> pause_after(const ProcessEnd& end, Clock::Time now);

 private:
  std::optional<Clock::Time> serving_since_;  // the running agent
  std::optional<Clock::Time> last_served_;    // any earlier agent
  int in_a_row_ = 0;
};

}  // namespace carve::keeper
