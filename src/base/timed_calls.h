#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/mutex.h"
#include "base/thread.h"

namespace carve {

/// Calls that may wait in the kernel for as long as the user of another process chooses, each with a time limit: most
/// files below /proc/<pid> wait for a lock that the process holds during an exec, and stat() of an open file waits for
/// the server of its file system. A call that takes longer is left behind with its thread, and another thread makes the
/// next calls. Used by one thread at a time.
class TimedCalls {
 public:
  /// As many calls wait at the same time at most. Further calls are not made.
  static constexpr std::size_t kMostLeftBehind = 32;

  ///   name  of the threads
  ///   most  how long a call may take
  TimedCalls(ThreadName name, std::chrono::milliseconds most) : name_(name), most_(most) {}
  TimedCalls(const TimedCalls&) = delete;
  TimedCalls& operator=(const TimedCalls&) = delete;
  /// Never waits for a call that was left behind: only the end of the process ends such a call.
  ~TimedCalls();

  /// Makes the call in another thread. True: it has returned. False: it has not, and may go on, so it owns all that it
  /// uses; or an earlier call about the same process still waits; or too many do.
  ///   pid   the process that the call may wait for
  ///   cost  two switches of threads
  ///   errors  std::system_error: the system has no thread left
  bool make(std::int32_t pid, std::function<void()> call);

 private:
  struct Worker {
    Mutex mutex;
    Condition changed;
    std::function<void()> call GUARDED_BY(mutex);
    bool busy GUARDED_BY(mutex) = false;
    bool stop GUARDED_BY(mutex) = false;
    Thread thread;

    void run() EXCLUDES(mutex);
  };
  void forget_ended();

  ThreadName name_;
  std::chrono::milliseconds most_;
  std::shared_ptr<Worker> worker_;
  std::map<std::int32_t, std::shared_ptr<Worker>> left_behind_;  // by the process that they wait for
};

}  // namespace carve
