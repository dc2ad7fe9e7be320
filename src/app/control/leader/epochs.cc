#include "app/control/leader/epochs.h"

#include <algorithm>

namespace carve::control {

std::uint64_t epochs_so_far(const ClusterModel& model, const Clock& clock) {
  constexpr Clock::WallTime kBegin{std::chrono::seconds(1'767'225'600)};  // 2026-01-01T00:00:00Z
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(clock.wall_now() - kBegin).count();
  return std::max(model.highest_epoch(), static_cast<std::uint64_t>(std::max<std::int64_t>(since, 0)));
}

}  // namespace carve::control
