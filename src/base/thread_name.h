#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>

namespace carve {

/// The name of a thread as a constant: a string literal of at most 15 characters, which is what the kernel keeps.
class ThreadName {
 public:
  template <std::size_t kSize>
  explicit constexpr ThreadName(const char (&literal)[kSize]) : text_(&literal[0]) {
    static_assert(kSize > 1 && kSize <= 16, "a thread's name has 1 to 15 characters");
  }
  [[nodiscard]] constexpr const char* text() const { return text_; }

 private:
  const char* text_;
};

/// Names the calling thread in `top -H`, in profiles and in bench/cluster; at most 15 characters.
inline void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

/// Threads that this thread starts while the object exists inherit `name`. It names the threads that a library starts.
class NamesThreads {
 public:
  explicit NamesThreads(const char* name) {
    ::pthread_getname_np(::pthread_self(), before_.data(), before_.size());
    name_thread(name);
  }
  NamesThreads(const NamesThreads&) = delete;
  NamesThreads& operator=(const NamesThreads&) = delete;
  ~NamesThreads() { name_thread(before_.data()); }

 private:
  std::array<char, 16> before_{};
};

}  // namespace carve
