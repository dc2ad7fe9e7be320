#include "base/clock.h"

#include <iterator>

namespace carve {

Clock::Time SystemClock::now() const { return std::chrono::steady_clock::now(); }

Clock::WallTime SystemClock::wall_now() const { return std::chrono::system_clock::now(); }

bool SystemClock::sleep_until(Time deadline, const std::stop_token& stop) {
  Mutex mutex;
  StopCondition never;
  MutexLock lock(mutex);
  while (!stop.stop_requested() && now() < deadline) never.wait_until(lock, stop, deadline);
  return !stop.stop_requested();
}

Clock::Time ManualClock::now() const {
  const MutexLock lock(mutex_);
  return Time(passed_);
}

Clock::WallTime ManualClock::wall_now() const {
  constexpr WallTime kStart{std::chrono::seconds(1'767'225'600)};  // 2026-01-01T00:00:00Z
  const MutexLock lock(mutex_);
  return kStart + passed_;
}

bool ManualClock::sleep_until(Time deadline, const std::stop_token& stop) {
  MutexLock lock(mutex_);
  const auto mine = deadlines_.insert(deadline);
  moved_.notify_all();
  while (Time(passed_) < deadline && !stop.stop_requested()) moved_.wait(lock, stop);
  deadlines_.erase(mine);
  return Time(passed_) >= deadline;
}

void ManualClock::advance(Duration duration) {
  {
    const MutexLock lock(mutex_);
    passed_ += duration;
  }
  moved_.notify_all();
}

void ManualClock::wait_for_sleepers(int count) {
  MutexLock lock(mutex_);
  while (std::distance(deadlines_.upper_bound(Time(passed_)), deadlines_.end()) < count) {
    moved_.wait(lock);
  }
}

}  // namespace carve
