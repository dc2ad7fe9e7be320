#pragma once

#include <cstdint>

namespace carve::preload {

/// Identifies the calling thread. With a TLS variable the library would not load under musl, and the call would cost
/// more.
inline std::uintptr_t thread_pointer() {
#if defined(__x86_64__)
  std::uintptr_t self;  // some clang versions lack the builtin on x86-64
  __asm__("movq %%fs:0, %0" : "=r"(self));
  return self;
#else
  return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer());
#endif
}

}  // namespace carve::preload
