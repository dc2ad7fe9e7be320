#pragma once

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>

namespace carve::preload {

/// Waits while `*word == value`, for at most `ns`. Works on read-only shared mappings. Preserves errno.
inline void futex_wait(const std::uint32_t* word, std::uint32_t value, std::uint64_t ns, bool shared) {
  const int kept = errno;
  const timespec most{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &most, nullptr, 0);
  errno = kept;
}

inline void futex_wake(std::uint32_t* word, bool shared) {
  const int kept = errno;
  syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 0x7fffffff, nullptr, nullptr, 0);
  errno = kept;
}

}  // namespace carve::preload
