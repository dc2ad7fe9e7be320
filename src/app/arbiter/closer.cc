#include "app/arbiter/closer.h"

#include <system_error>
#include <thread>
#include <utility>

namespace carve::arbiter {

void Closer::take(Fd fd) {
  if (!fd) return;
  const std::lock_guard lock(queue_->mutex);
  queue_->waiting.push_back(std::move(fd));
  start(queue_);
}

bool Closer::full() const {
  const std::lock_guard lock(queue_->mutex);
  start(queue_);
  return queue_->waiting.size() >= kMost;
}

// Under the queue's lock.
void Closer::start(const std::shared_ptr<Queue>& queue) {
  if (queue->running || queue->waiting.empty()) return;
  try {
    // not joinable: a tenant can keep it asleep; it ends with the process at the latest
    std::thread(run, queue).detach();
    queue->running = true;
  } catch (const std::system_error&) {  // no thread can be started now
  }
}

void Closer::run(const std::shared_ptr<Queue>& queue) {
  std::unique_lock lock(queue->mutex);
  while (!queue->waiting.empty()) {
    Fd next = std::move(queue->waiting.front());
    queue->waiting.pop_front();
    lock.unlock();
    next.reset();
    lock.lock();
  }
  queue->running = false;
}

}  // namespace carve::arbiter
