#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "base/thread_name.h"

namespace carve {

/// A named thread. Its destructor requests the stop and joins it, so no thread outlives the objects that it uses. All
/// threads of Carve's processes are of this type and are listed in docs/threads.md, except those that a library starts.
class Thread {
 public:
  Thread() = default;
  /// Starts `run` in a thread named `name`, at most 15 characters. `run` returns soon after its token requests the stop.
  ///   errors  std::system_error: the system has no thread left
  Thread(std::string name, std::function<void(std::stop_token)> run)
      : thread_([name = std::move(name), run = std::move(run)](std::stop_token stop) {
          name_thread(name.c_str());
          run(std::move(stop));
        }) {}
  Thread(Thread&&) = default;
  Thread& operator=(Thread&&) = default;
  void request_stop() { thread_.request_stop(); }
  /// Waits until the thread ends. Does nothing for a thread that was joined or never started.
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] bool running() const { return thread_.joinable(); }

 private:
  std::jthread thread_;
};

}  // namespace carve
