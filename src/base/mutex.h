#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "base/annotations.h"

namespace carve {

/// std::mutex with annotations. Costs the same. docs/threads.md lists every Mutex, what it protects and in which order
/// a thread may take two of them.
class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  /// Tells the compiler that the caller holds the lock. Checks nothing at run time.
  void assert_held() const ASSERT_CAPABILITY(this) {}
  [[nodiscard]] std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex until the end of the block, or until unlock().
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex.native()) {}
  ~MutexLock() RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void unlock() RELEASE() { lock_.unlock(); }
  void lock() ACQUIRE() { lock_.lock(); }
  [[nodiscard]] std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// std::condition_variable for MutexLock. It has no form with a predicate, because the compiler does not see the
/// caller's lock inside a lambda: write `while (!ready_) changed_.wait(lock);`.
class Condition {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }
  void wait(MutexLock& lock) { changed_.wait(lock.native()); }
  template <typename Clock, typename Duration>
  std::cv_status wait_until(MutexLock& lock, std::chrono::time_point<Clock, Duration> end) {
    return changed_.wait_until(lock.native(), end);
  }
  template <typename Rep, typename Period>
  std::cv_status wait_for(MutexLock& lock, std::chrono::duration<Rep, Period> span) {
    return changed_.wait_for(lock.native(), span);
  }

 private:
  std::condition_variable changed_;
};

/// A Condition with waits that also end when a stop is requested. Each operation costs one more lock than Condition's.
/// Write `while (!ready_ && !stop.stop_requested()) changed_.wait(lock, stop);`.
class StopCondition {
 public:
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }
  void wait(MutexLock& lock) { changed_.wait(lock.native()); }
  /// Returns after a notification, after the stop is requested, or for no reason. Returns immediately if the stop has
  /// been requested before.
  void wait(MutexLock& lock, const std::stop_token& stop) {
    changed_.wait(lock.native(), stop, [woken = false]() mutable { return std::exchange(woken, true); });
  }
  /// The same, and returns at `end` at the latest.
  template <typename Clock, typename Duration>
  void wait_until(MutexLock& lock, const std::stop_token& stop, std::chrono::time_point<Clock, Duration> end) {
    changed_.wait_until(lock.native(), stop, end, [woken = false]() mutable { return std::exchange(woken, true); });
  }

 private:
  std::condition_variable_any changed_;
};

}  // namespace carve
