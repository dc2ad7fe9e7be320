#include "adapter/kubelet/workers.h"

#include <utility>

namespace carve::kubelet {

Workers::Workers(ThreadName name, unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back(name, [this] { run(); });
}

bool Workers::post(std::function<void()> job) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void Workers::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Workers::run() {
  for (;;) {
    std::function<void()> job;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && jobs_.empty()) changed_.wait(lock);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace carve::kubelet
