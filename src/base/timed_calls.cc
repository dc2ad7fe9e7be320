#include "base/timed_calls.h"

#include <utility>
#include <vector>

namespace carve {

void TimedCalls::Worker::run() {
  MutexLock lock(mutex);
  for (;;) {
    while (!busy && !stop) changed.wait(lock);
    if (!busy) return;
    auto now = std::exchange(call, nullptr);
    lock.unlock();
    now();
    now = nullptr;  // what it owns is freed here
    lock.lock();
    busy = false;
    changed.notify_all();
  }
}

TimedCalls::~TimedCalls() {
  static auto& waiting = *new std::vector<std::shared_ptr<Worker>>;  // never freed: their threads use them
  forget_ended();
  for (auto& [pid, worker] : left_behind_) waiting.push_back(std::move(worker));
  if (!worker_) return;
  const MutexLock lock(worker_->mutex);
  worker_->stop = true;
  worker_->changed.notify_all();
}

void TimedCalls::forget_ended() {
  std::erase_if(left_behind_, [](const auto& one) {
    const MutexLock lock(one.second->mutex);
    return !one.second->busy;
  });
}

bool TimedCalls::make(std::int32_t pid, std::function<void()> call) {
  forget_ended();
  if (left_behind_.size() >= kMostLeftBehind || left_behind_.contains(pid)) return false;
  if (!worker_) {
    auto started = std::make_shared<Worker>();
    started->thread = Thread(name_, [raw = started.get()] { raw->run(); });
    worker_ = std::move(started);
  }
  const auto end = std::chrono::steady_clock::now() + most_;
  {
    MutexLock lock(worker_->mutex);
    worker_->call = std::move(call);
    worker_->busy = true;
    worker_->changed.notify_all();
    while (worker_->busy && worker_->changed.wait_until(lock, end) == std::cv_status::no_timeout) {
    }
    if (!worker_->busy) return true;
    worker_->stop = true;  // after this call
  }
  left_behind_[pid] = std::exchange(worker_, nullptr);
  return false;
}

}  // namespace carve
