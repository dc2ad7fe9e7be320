#pragma once

#include <optional>

#include "base/clock.h"

namespace carve {

/// When more compute than is allowed counts as a breach. In per cent of the card, by the driver's
/// own averages, which are coarse: a little too much has to last longer.
struct ComputeBounds {
  double points = 25;  // above what is allowed, in every round
  Clock::Duration lasting = std::chrono::seconds(2);
  double mean_points = 10;  // the same in the mean
  Clock::Duration mean_over = std::chrono::seconds(10);
  Clock::Duration forgiven_after = std::chrono::seconds(3);  // of using no more than is allowed
};

/// One slice on one card, held against the compute that it may use. Who was caught is looked at
/// once a second from then on: it is frozen for a part of every second meanwhile, so what it uses
/// is judged by the rest.
class ComputeCase {
 public:
  /// One round; `now` grows. What it uses when nobody stops it, if that is to be acted upon now.
  std::optional<double> look(double used, double allowed, Clock::Time now,
                             const ComputeBounds& bounds);
  /// It is kept from running for this share of the next second.
  void frozen(double share) { frozen_ = share; }

 private:
  void begin(Clock::Time now);
  std::optional<double> judge(double used, double allowed, Clock::Time now,
                              const ComputeBounds& bounds);
  std::optional<double> judge_again(double allowed, Clock::Time now, const ComputeBounds& bounds);

  bool seen_ = false;
  bool caught_ = false;
  Clock::Time last_{};
  Clock::Time begin_{};   // of the mean
  double used_ = 0;       // per cent × seconds since then
  double excess_ = 0;     // the same, above what was allowed
  Clock::Time within_{};  // when it last used no more than it may
  double most_ = 0;       // since it last was within its bounds
  double frozen_ = 0;
};

}  // namespace carve
