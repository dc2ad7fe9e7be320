#include "base/clock.h"

#include <iterator>

namespace carve {

Clock::Time SystemClock::now() const { return std::chrono::steady_clock::now(); }

Clock::WallTime SystemClock::wall_now() const { return std::chrono::system_clock::now(); }

bool SystemClock::sleep_until(Time deadline, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_until(lock, stop, deadline, [] { return false; });
  return !stop.stop_requested();
}

Clock::Time ManualClock::now() const {
  const std::lock_guard lock(mutex_);
  return Time(passed_);
}

Clock::WallTime ManualClock::wall_now() const {
  constexpr WallTime kStart{std::chrono::seconds(1'767'225'600)};  // 2026-01-01T00:00:00Z
  const std::lock_guard lock(mutex_);
  return kStart + passed_;
}

bool ManualClock::sleep_until(Time deadline, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto mine = deadlines_.insert(deadline);
  moved_.notify_all();
  const bool reached = moved_.wait(lock, stop, [&] { return Time(passed_) >= deadline; });
  deadlines_.erase(mine);
  return reached;
}

void ManualClock::advance(Duration duration) {
  {
    const std::lock_guard lock(mutex_);
    passed_ += duration;
  }
  moved_.notify_all();
}

void ManualClock::wait_for_sleepers(int count) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] {
    return std::distance(deadlines_.upper_bound(Time(passed_)), deadlines_.end()) >= count;
  });
}

}  // namespace carve
