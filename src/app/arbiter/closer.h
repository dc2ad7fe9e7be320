#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "base/fd.h"

namespace carve::arbiter {

/// Closes, beside the event loop, what a slice's processes sent or may have left unread in a socket: the last close of
/// a file sleeps as long as who made it likes (a TCP socket that lingers, a file system in user space). One per slice,
/// so that who makes it sleep is the only one to wait. A copy is the same one. Never waits; safe from any thread.
class Closer {
 public:
  /// So many wait to be closed at most before nothing more is to be taken from this slice.
  static constexpr std::size_t kMost = 64;

  void take(Fd fd);
  /// Asked again and again by who is told yes: where no thread could be had for it, this tries anew.
  [[nodiscard]] bool full() const;

 private:
  struct Queue {
    std::mutex mutex;
    std::deque<Fd> waiting;
    bool running = false;  // a thread is at it
  };
  static void start(const std::shared_ptr<Queue>& queue);
  static void run(const std::shared_ptr<Queue>& queue);
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

}  // namespace carve::arbiter
