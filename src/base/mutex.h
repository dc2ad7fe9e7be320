#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Clang checks at compile time that a thread holds the lock that the annotations name (-Wthread-safety). g++ ignores the
// annotations.
#if defined(__clang__)
#define CARVE_ANNOTATION(x) __attribute__((x))
#else
#define CARVE_ANNOTATION(x)
#endif
/// The class is a lock; `name` appears in the compiler's messages.
#define CAPABILITY(name) CARVE_ANNOTATION(capability(name))
/// The class holds a lock from its construction to its destruction.
#define SCOPED_CAPABILITY CARVE_ANNOTATION(scoped_lockable)
/// The member is read and written only under the lock.
#define GUARDED_BY(lock) CARVE_ANNOTATION(guarded_by(lock))
/// What the pointer points to is read and written only under the lock.
#define PT_GUARDED_BY(lock) CARVE_ANNOTATION(pt_guarded_by(lock))
/// The caller holds the lock.
#define REQUIRES(...) CARVE_ANNOTATION(requires_capability(__VA_ARGS__))
/// The caller does not hold the lock: the function takes it, or waits for a thread that takes it.
#define EXCLUDES(...) CARVE_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) CARVE_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) CARVE_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) CARVE_ANNOTATION(try_acquire_capability(__VA_ARGS__))
/// This lock is taken before the other one.
#define ACQUIRED_BEFORE(...) CARVE_ANNOTATION(acquired_before(__VA_ARGS__))
#define RETURN_CAPABILITY(lock) CARVE_ANNOTATION(lock_returned(lock))
/// The function follows a rule that the compiler cannot check. A comment says which.
#define NO_THREAD_SAFETY_ANALYSIS CARVE_ANNOTATION(no_thread_safety_analysis)

namespace carve {

/// std::mutex with annotations. Costs the same.
class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
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

/// std::condition_variable for MutexLock. It has no form with a predicate, because the compiler does not see the caller's
/// lock inside a lambda: write `while (!ready_) changed_.wait(lock);`.
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

}  // namespace carve
