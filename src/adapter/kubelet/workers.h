#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace carve::kubelet {

/// A fixed number of threads for calls that may block, so that gRPC's own few threads never block. Jobs start in the
/// order of post(). stop() runs the queued jobs and then joins the threads.
class Workers {
 public:
  explicit Workers(unsigned threads);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// False after stop(): the job does not run.
  bool post(std::function<void()> job);
  void stop();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace carve::kubelet
