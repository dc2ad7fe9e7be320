#pragma once

#include <cstddef>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/thread_name.h"

namespace carve {

/// A named thread. Its destructor requests the stop and joins it, so no thread outlives the objects that it uses. All
/// threads of Carve's processes are of this type and are listed in docs/threads.md, except those that a library starts.
class Thread {
 public:
  Thread() = default;
  /// Starts `run` in a thread named `name`, a string literal of at most 15 characters. `run` takes no argument or a
  /// std::stop_token, and returns soon after the token requests the stop.
  ///   errors  std::system_error: the system has no thread left
  template <std::size_t kSize, typename Run>
  Thread(const char (&name)[kSize], Run run)
      : thread_([name = &name[0], run = std::move(run)](const std::stop_token& stop) mutable {
          name_thread(name);
          if constexpr (std::is_invocable_v<Run&, std::stop_token>) {
            run(stop);
          } else {
            run();
          }
        }) {
    static_assert(kSize > 1 && kSize <= 16, "the kernel keeps 15 characters of a thread's name");
  }
  Thread(Thread&&) = default;
  /// Stops and joins the previous thread first.
  Thread& operator=(Thread&&) = default;
  void request_stop() { thread_.request_stop(); }
  /// Waits until the thread ends. Does nothing for a thread that was joined or never started.
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// True from the start until join(), even if the function has returned in the meantime.
  [[nodiscard]] bool running() const { return thread_.joinable(); }
  [[nodiscard]] std::stop_token stop_token() const { return thread_.get_stop_token(); }

 private:
  std::jthread thread_;
};

}  // namespace carve
