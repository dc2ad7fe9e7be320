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
  /// Starts `run` in a thread with this name. `run` takes no argument or a std::stop_token, and returns soon after the
  /// token requests the stop.
  ///   errors  std::system_error: the system has no thread left
  template <typename Run>
  Thread(ThreadName name, Run run)
      : thread_([name, run = std::move(run)](const std::stop_token& stop) mutable {
          name_thread(name.text());
          if constexpr (std::is_invocable_v<Run&, std::stop_token>) {
            run(stop);
          } else {
            run();
          }
        }) {}
  /// The same; `name` is a string literal.
  template <std::size_t kSize, typename Run>
  Thread(const char (&name)[kSize], Run run) : Thread(ThreadName(name), std::move(run)) {}
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
