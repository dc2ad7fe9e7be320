#include "app/keeper/restarts.h"

#include <algorithm>
#include <utility>

namespace carve::keeper {

void Restarts::served(Clock::Time now) {
  if (!serving_since_) serving_since_ = now;
}

std::optional<Clock::Duration> Restarts::pause_after(const ProcessEnd& end, Clock::Time now) {
  const auto since = std::exchange(serving_since_, std::nullopt);
  if (since) last_served_ = now;
  if (end.code == 0 && end.signal == 0) return std::nullopt;
  if (!last_served_ || now - *last_served_ >= kWithoutService) return std::nullopt;
  if (since && now - *since >= kProven) in_a_row_ = 0;
  if (++in_a_row_ > kMostInARow) return std::nullopt;
  if (in_a_row_ == 1) return Clock::Duration::zero();
  auto pause = kFirstPause;
  for (int i = 2; i < in_a_row_ && pause < kLongestPause; ++i) pause *= 2;
  return std::min(pause, kLongestPause);
}

}  // namespace carve::keeper
