#include "arbiter/closer.h"

#include <system_error>
#include <utility>

namespace carve::arbiter {

void Closer::take(Fd fd) {
  if (!fd) return;
  const MutexLock lock(queue_->mutex);
  queue_->waiting.push_back(std::move(fd));
  queue_->start();
}

bool Closer::full() const {
  const MutexLock lock(queue_->mutex);
  queue_->start();
  return queue_->waiting.size() >= kMost;
}

void Closer::Queue::start() {
  if (running || waiting.empty()) return;
  try {
    // Joins the previous thread, which has nothing left to do and takes no lock.
    thread = Thread("arbiter-close", [this] { run(); });
    running = true;
  } catch (const std::system_error&) {  // no thread can be started now
  }
}

void Closer::Queue::run() {
  MutexLock lock(mutex);
  while (!waiting.empty()) {
    Fd next = std::move(waiting.front());
    waiting.pop_front();
    lock.unlock();
    next.reset();
    lock.lock();
  }
  running = false;
  ended.notify_all();
}

Closer Closers::open() { return Closer(queues_.emplace_back(std::make_shared<Closer::Queue>())); }

void Closers::reap() {
  std::erase_if(queues_, [](const std::shared_ptr<Closer::Queue>& queue) {
    if (queue.use_count() > 1) return false;
    const MutexLock lock(queue->mutex);
    return !queue->running && queue->waiting.empty();
  });
}

Closers::~Closers() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (const auto& queue : queues_) {
    MutexLock lock(queue->mutex);
    while (queue->running && queue->ended.wait_until(lock, end) == std::cv_status::no_timeout) {
    }
    if (!queue->running) continue;
    static auto& left = *new std::vector<std::shared_ptr<Closer::Queue>>;  // never freed: their threads use them
    left.push_back(queue);
  }
}

}  // namespace carve::arbiter
