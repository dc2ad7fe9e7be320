#pragma once

#include <pthread.h>

#include <array>

namespace carve {

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
