#pragma once

#include <chrono>
#include <set>
#include <stop_token>

#include "base/mutex.h"

namespace carve {

/// Time as a parameter. Only cmd/ creates the system's clock; tests use ManualClock and never sleep. Safe from any
/// thread.
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  using Time =
      std::chrono::time_point<std::chrono::steady_clock, Duration>;  // since boot, for durations
  using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;  // UTC, for people

  virtual ~Clock() = default;
  [[nodiscard]] virtual Time now() const = 0;
  [[nodiscard]] virtual WallTime wall_now() const = 0;
  /// Waits until `deadline`. False: `stop` was requested first.
  virtual bool sleep_until(Time deadline, const std::stop_token& stop) = 0;
  bool sleep_for(Duration duration, const std::stop_token& stop) {
    return sleep_until(now() + duration, stop);
  }
};

/// The system's clocks.
class SystemClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override;
  [[nodiscard]] WallTime wall_now() const override;
  bool sleep_until(Time deadline, const std::stop_token& stop) override;
};

/// Does not move by itself. Starts at 1 s after its epoch, on 2026-01-01 00:00:00 UTC.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] Time now() const override;
  [[nodiscard]] WallTime wall_now() const override;
  bool sleep_until(Time deadline, const std::stop_token& stop) override;
  /// Moves both times and wakes every thread with a deadline that has passed.
  void advance(Duration duration);
  /// Blocks until `count` threads sleep on this clock with a deadline in the future. A test calls it before advance():
  /// the threads that the last advance() woke have then done their work and sleep again.
  void wait_for_sleepers(int count);

 private:
  mutable Mutex mutex_;
  StopCondition moved_;
  Duration passed_ GUARDED_BY(mutex_) = std::chrono::seconds(1);
  std::multiset<Time> deadlines_ GUARDED_BY(mutex_);  // of the sleeping threads
};

}  // namespace carve
