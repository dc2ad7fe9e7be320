#pragma once

#include <sched.h>

#include <cstdint>

namespace carve::preload {

/// Tells the core that this thread only waits.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// A lock for a few instructions: a pointer table's shard, a pool's counters. Not for the launch path. Zero is
/// unlocked, so a child in which the kernel emptied it starts with it free.
class Lock {
 public:
  void acquire() {
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
  bool try_acquire() { return __atomic_exchange_n(&held_, 1U, __ATOMIC_ACQUIRE) == 0; }
  void release() { __atomic_store_n(&held_, 0U, __ATOMIC_RELEASE); }

 private:
  std::uint32_t held_;
};

class Hold {
 public:
  explicit Hold(Lock& lock) : lock_(lock) { lock_.acquire(); }
  ~Hold() { lock_.release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Lock& lock_;
};

}  // namespace carve::preload
