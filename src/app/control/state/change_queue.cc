#include "app/control/state/change_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace carve::control {

void ChangeFeed::pod(const std::string& uid) const {
  const MutexLock lock(mutex_);
  for (ChangeQueue* queue : queues_) queue->add_pod(uid);
}

void ChangeFeed::node(const std::string& name) const {
  const MutexLock lock(mutex_);
  for (ChangeQueue* queue : queues_) queue->add_node(name);
}

void ChangeFeed::all() const {
  const MutexLock lock(mutex_);
  for (ChangeQueue* queue : queues_) queue->add_all();
}

ChangeQueue::ChangeQueue(std::initializer_list<const ChangeFeed*> feeds) : feeds_(feeds) {
  for (const ChangeFeed* feed : feeds_) {
    const MutexLock lock(feed->mutex_);
    feed->queues_.push_back(this);
  }
}

ChangeQueue::~ChangeQueue() {
  for (const ChangeFeed* feed : feeds_) {
    const MutexLock lock(feed->mutex_);
    std::erase(feed->queues_, this);
  }
}

void ChangeQueue::add_pod(const std::string& uid) {
  const MutexLock lock(mutex_);
  changes_.pods.insert(uid);
  changed_.notify_one();
}

void ChangeQueue::add_node(const std::string& name) {
  const MutexLock lock(mutex_);
  changes_.nodes.insert(name);
  changed_.notify_one();
}

void ChangeQueue::add_all() {
  const MutexLock lock(mutex_);
  changes_.all = true;
  changed_.notify_one();
}

Changes ChangeQueue::take() {
  const MutexLock lock(mutex_);
  return std::exchange(changes_, {});
}

void ChangeQueue::wait(Clock& clock, Clock::Time until, const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (changes_.empty() && !stop.stop_requested()) {
    const auto now = clock.now();
    if (now >= until) return;
    changed_.wait_until(lock, stop, std::chrono::steady_clock::now() + std::min(until - now, kResync));
  }
}

void ChangeQueue::run(Clock& clock, const std::stop_token& stop, const std::function<Clock::Time()>& step,
                      Clock::Duration gather) {
  while (!stop.stop_requested()) {
    wait(clock, step(), stop);
    if (!clock.sleep_for(gather, stop)) return;
  }
}

}  // namespace carve::control
