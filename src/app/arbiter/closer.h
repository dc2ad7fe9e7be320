#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "base/fd.h"

namespace carve::arbiter {

/// Closes the descriptors that a slice's processes sent, or may have left unread in a socket, outside the event loop.
/// The last close of a file may sleep for as long as the process that created the file chooses (a TCP socket that
/// lingers, a file system in user space). There is one closer per slice, so a slice that causes such a sleep delays
/// only itself. Copies share one queue. Never waits; safe from any thread.
class Closer {
 public:
  /// The maximum number of waiting descriptors. At this number the server takes nothing more from the slice.
  static constexpr std::size_t kMost = 64;

  void take(Fd fd);
  /// True while the queue is full. The caller polls it; if no thread could be started before, this call tries again.
  [[nodiscard]] bool full() const;

 private:
  struct Queue {
    std::mutex mutex;
    std::deque<Fd> waiting;
    bool running = false;  // a thread closes descriptors of this queue
  };
  static void start(const std::shared_ptr<Queue>& queue);
  static void run(const std::shared_ptr<Queue>& queue);
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

}  // namespace carve::arbiter
