#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
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
  [[nodiscard]] bool full() const;

 private:
  friend class Closers;
  struct Starter;
  struct Queue {
    Mutex mutex;
    Condition ended;
    std::deque<Fd> waiting GUARDED_BY(mutex);
    bool running GUARDED_BY(mutex) = false;  // a thread closes descriptors, or will be started for that
    Thread thread;                           // only the starter's thread uses it

    void run() EXCLUDES(mutex);
  };
  Closer(std::shared_ptr<Starter> starter, std::shared_ptr<Queue> queue)
      : starter_(std::move(starter)), queue_(std::move(queue)) {}
  std::shared_ptr<Starter> starter_;
  std::shared_ptr<Queue> queue_;
};

/// Owns the threads of all closers. Used by one thread, which neither starts nor joins one of them: the start and the
/// end of a thread wait for the kernel's cgroup lock, for seconds while many containers start on a busy machine. One
/// more thread, the starter, does both.
class Closers {
 public:
  /// The destructor waits this long for descriptors that are being closed.
  static constexpr std::chrono::milliseconds kPatience{200};
  /// Starts a thread that calls the function once.
  ///   errors  std::system_error: the system has no thread left
  using Start = std::function<Thread(std::function<void()>)>;

  Closers();
  explicit Closers(Start start);
  Closers(const Closers&) = delete;
  Closers& operator=(const Closers&) = delete;
  /// Joins the threads. A thread that still sleeps in close() keeps its queue, which is never freed: only the end of
  /// the process ends such a sleep.
  ~Closers();
  [[nodiscard]] Closer open();
  /// Forgets ended slices whose descriptors are closed. Never waits.
  void reap();
  /// The number of queues: one per slice, and one per ended slice that still has descriptors to close.
  [[nodiscard]] std::size_t size() const { return queues_.size(); }

 private:
  std::shared_ptr<Closer::Starter> starter_;
  std::vector<std::shared_ptr<Closer::Queue>> queues_;
  Thread starts_;
};

}  // namespace carve::arbiter
