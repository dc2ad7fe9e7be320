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
  /// Joins the threads. A thread that still sleeps in close() is left to the end of the process, which is the only
  /// event that ends such a sleep: its queue is never freed.
  ~Closers();
  [[nodiscard]] Closer open();
  /// Joins the threads of the slices that are gone and whose descriptors are closed. Never waits for a descriptor.
  void reap();
  /// The number of queues: of slices, and of slices that are gone but have descriptors left.
  [[nodiscard]] std::size_t size() const { return queues_.size(); }

 private:
  std::vector<std::shared_ptr<Closer::Queue>> queues_;
};

}  // namespace carve::arbiter
