#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace carve::arbiter {

/// Closes the descriptors that a slice's processes sent, or may have left unread in a socket, outside the event loop.
/// The last close of a file may sleep for as long as the creator of the file chooses (a TCP socket that lingers, a file
/// system in user space). Each slice has its own closer, so such a sleep delays only that slice. Copies share one
/// queue. Never waits; safe from any thread.
class Closer {
 public:
  /// The maximum number of waiting descriptors. A full closer makes the server read nothing more from the slice.
  static constexpr std::size_t kMost = 64;

  void take(Fd fd);
  /// True while the queue is full. The caller polls it; if no thread could be started before, this call tries again.
  [[nodiscard]] bool full() const;

 private:
  friend class Closers;
  struct Queue {
    Mutex mutex;
    Condition ended;
    std::deque<Fd> waiting GUARDED_BY(mutex);
    bool running GUARDED_BY(mutex) = false;  // the thread closes descriptors
    Thread thread GUARDED_BY(mutex);

    void start() REQUIRES(mutex);
    void run() EXCLUDES(mutex);
  };
  explicit Closer(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  std::shared_ptr<Queue> queue_;
};

/// Owns the threads of all closers. Used by one thread.
class Closers {
 public:
  /// The destructor waits this long for descriptors that are being closed.
  static constexpr std::chrono::milliseconds kPatience{200};

  Closers() = default;
  Closers(const Closers&) = delete;
  Closers& operator=(const Closers&) = delete;
  /// Joins the threads. A thread that still sleeps in close() keeps its queue, which is never freed: only the end of
  /// the process ends such a sleep.
  ~Closers();
  [[nodiscard]] Closer open();
  /// Joins the threads of ended slices after their descriptors are closed. Never waits for a descriptor.
  void reap();
  /// The number of queues: one per slice, and one per ended slice that still has descriptors to close.
  [[nodiscard]] std::size_t size() const { return queues_.size(); }

 private:
  std::vector<std::shared_ptr<Closer::Queue>> queues_;
};

}  // namespace carve::arbiter
