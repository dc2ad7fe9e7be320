#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "core/model/slice.h"
#include "port/pages.h"

namespace carve::agent {

/// When rescue leases count as repeated. The arbiter gives a slice a rescue lease, a short lease out of turn, when its
/// work in flight seems to wait for a launch that may not start yet (lease/arbiter.h). An honest program needs one now
/// and then. A program that needs one again and again hangs, or imitates that to get more of the card.
struct RescueBounds {
  /// Longer than `repeated_at` times the longest pause between two rescue leases of a slice (6.4 s, when slices of a
  /// higher priority class compete with it), so that a slice that hangs permanently is reported again and again.
  Clock::Duration window = std::chrono::seconds(30);
  std::uint64_t repeated_at = 3;                          // rescue leases within the window
  Clock::Duration again_after = std::chrono::minutes(1);  // from one report of a slice and card to the next
};

/// A slice that got rescue leases repeatedly.
struct RepeatedRescue {
  std::string slice;
  CardId card;
  std::uint64_t count = 0;  // within the window
  [[nodiscard]] std::string text(const RescueBounds& bounds = {}) const;
};

/// Counts the rescue leases of each slice and card over a window, from the arbiter's counters. Pure: time is a
/// parameter. Not thread-safe.
class RescueWatch {
 public:
  explicit RescueWatch(RescueBounds bounds = {}) : bounds_(bounds) {}
  /// One round; `now` never decreases. `pages`: the arbiter's complete list; slices that are not in it are forgotten.
  /// The first value of a counter is not counted, because the time of those rescue leases is unknown. A counter that
  /// decreased is from another arbiter, which started at 0.
  ///   returns the slices to report now
  ///   cost    O(slices × cards × log slices)
  std::vector<RepeatedRescue> look(const std::vector<PageSlice>& pages, Clock::Time now);

 private:
  struct Counted {
    std::uint32_t total = 0;                                   // the arbiter's counter in the last round
    std::deque<std::pair<Clock::Time, std::uint32_t>> lately;  // rounds in which the counter grew, and by how much
    bool reported = false;
    Clock::Time reported_at{};
    Clock::Time last_round{};
  };
  RescueBounds bounds_;
  std::map<std::pair<std::string, CardId>, Counted> counted_;
};

}  // namespace carve::agent
