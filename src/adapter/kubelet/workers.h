#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"

namespace carve::kubelet {

/// A fixed number of threads for calls that may block, so that gRPC's own few threads never block. Jobs start in the
/// order of post(). stop() runs the queued jobs and then joins the threads.
class Workers {
 public:
  Workers(ThreadName name, unsigned threads);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// False after stop(): the job does not run.
  bool post(std::function<void()> job);
  void stop();

 private:
  void run();
  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> jobs_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace carve::kubelet
