#pragma once

#include <pthread.h>

#include <array>

namespace carve {

/// By this name `top -H`, a profile and bench/cluster show the thread that calls; at most 15 letters.
inline void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

/// While it lives, threads that this one starts have that name: for those that a library starts.
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
