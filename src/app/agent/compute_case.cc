#include "app/agent/compute_case.h"

#include <algorithm>

namespace carve {
namespace {

constexpr Clock::Duration kSecond = std::chrono::seconds(1);

double seconds(Clock::Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void ComputeCase::begin(Clock::Time now) {
  begin_ = now;
  used_ = 0;
  excess_ = 0;
}

std::optional<double> ComputeCase::look(double used, double allowed, Clock::Time now,
                                        const ComputeBounds& bounds) {
  if (!seen_ || now - last_ > kSecond) {  // a gap: nobody knows what it did in between
    *this = ComputeCase();
    seen_ = true;
    last_ = within_ = now;
    begin(now);
  }
  const double passed = seconds(now - last_);
  used_ += used * passed;
  excess_ += (used - allowed) * passed;
  last_ = now;
  most_ = std::max(most_, used);
  return caught_ ? judge_again(allowed, now, bounds) : judge(used, allowed, now, bounds);
}

std::optional<double> ComputeCase::judge(double used, double allowed, Clock::Time now,
                                         const ComputeBounds& bounds) {
  if (used <= allowed + bounds.points) within_ = now;
  const bool long_enough = now - begin_ >= bounds.mean_over;
  const bool in_the_mean = long_enough && excess_ > bounds.mean_points * seconds(now - begin_);
  if (now - within_ >= bounds.lasting || in_the_mean) {
    caught_ = true;
    within_ = now;
    begin(now);
    return most_;
  }
  if (long_enough) {
    begin(now);
    most_ = used;
  }
  return std::nullopt;
}

std::optional<double> ComputeCase::judge_again(double allowed, Clock::Time now,
                                               const ComputeBounds& bounds) {
  const double passed = seconds(now - begin_);
  if (now - begin_ < kSecond) return std::nullopt;
  const double mean = used_ / passed / (1 - std::min(frozen_, 0.9));
  frozen_ = 0;
  begin(now);
  if (mean > allowed + bounds.mean_points) {
    within_ = now;
    return most_;
  }
  if (now - within_ >= bounds.forgiven_after) {
    *this = ComputeCase();
  }
  return std::nullopt;
}

}  // namespace carve
