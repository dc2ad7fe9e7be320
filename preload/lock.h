#pragma once

#include <sched.h>

#include <cstdint>

#include "base/annotations.h"

namespace carve::preload {

/// Tells the CPU core that this thread is in a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// A spin lock to hold for a few instructions: a shard of a pointer table, the counters of a pool. Not for the launch
/// path. Zero means unlocked, so the lock is free in a forked child in which the kernel zeroed it.
class CAPABILITY("lock") Lock {
 public:
  void acquire() ACQUIRE() {
    for (std::uint32_t spins = 0; __atomic_exchange_n(&held_, 1U, __ATOMIC_ACQUIRE) != 0;) {
      do {
        if (++spins % 64 == 0) {
          sched_yield();
        } else {
          relax();
        }
      } while (__atomic_load_n(&held_, __ATOMIC_RELAXED) != 0);
    }
  }
  bool try_acquire() TRY_ACQUIRE(true) { return __atomic_exchange_n(&held_, 1U, __ATOMIC_ACQUIRE) == 0; }
  void release() RELEASE() { __atomic_store_n(&held_, 0U, __ATOMIC_RELEASE); }

 private:
  std::uint32_t held_;
};

/// A readers-writer lock: many shared holders or one exclusive ("alone") holder. A thread that waits for exclusive
/// access precedes all threads that arrive after it. Zero means unlocked.
class CAPABILITY("shared lock") SharedLock {
 public:
  void acquire_shared() ACQUIRE_SHARED() {
    for (;;) {
      if ((__atomic_fetch_add(&word_, 1U, __ATOMIC_ACQUIRE) & kAlone) == 0) {
        return;
      }
      __atomic_fetch_sub(&word_, 1U, __ATOMIC_RELEASE);
      while ((__atomic_load_n(&word_, __ATOMIC_RELAXED) & kAlone) != 0) {
        sched_yield();
      }
    }
  }
  void release_shared() RELEASE_SHARED() { __atomic_fetch_sub(&word_, 1U, __ATOMIC_RELEASE); }
  void acquire_alone() ACQUIRE() {
    while ((__atomic_fetch_or(&word_, kAlone, __ATOMIC_ACQUIRE) & kAlone) != 0) {
      sched_yield();
    }
    while (__atomic_load_n(&word_, __ATOMIC_ACQUIRE) != kAlone) {
      sched_yield();
    }
  }
  void release_alone() RELEASE() { __atomic_fetch_and(&word_, ~kAlone, __ATOMIC_RELEASE); }

 private:
  static constexpr std::uint32_t kAlone = 1U << 31;
  std::uint32_t word_;
};

class SCOPED_CAPABILITY HoldShared {
 public:
  explicit HoldShared(SharedLock& lock) ACQUIRE_SHARED(lock) : lock_(lock) { lock_.acquire_shared(); }
  ~HoldShared() RELEASE() { lock_.release_shared(); }
  HoldShared(const HoldShared&) = delete;
  HoldShared& operator=(const HoldShared&) = delete;

 private:
  SharedLock& lock_;
};

class SCOPED_CAPABILITY HoldAlone {
 public:
  explicit HoldAlone(SharedLock& lock) ACQUIRE(lock) : lock_(lock) { lock_.acquire_alone(); }
  ~HoldAlone() RELEASE() { lock_.release_alone(); }
  HoldAlone(const HoldAlone&) = delete;
  HoldAlone& operator=(const HoldAlone&) = delete;

 private:
  SharedLock& lock_;
};

class SCOPED_CAPABILITY Hold {
 public:
  explicit Hold(Lock& lock) ACQUIRE(lock) : lock_(lock) { lock_.acquire(); }
  ~Hold() RELEASE() { lock_.release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Lock& lock_;
};

}  // namespace carve::preload
