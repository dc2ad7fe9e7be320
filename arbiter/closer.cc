#include "arbiter/closer.h"

#include <system_error>
#include <utility>

namespace carve::arbiter {

/// What the starter's thread has to do.
struct Closer::Starter {
  Mutex mutex;
  StopCondition wanted;
  std::deque<std::shared_ptr<Queue>> idle GUARDED_BY(mutex);   // each needs a thread
  std::vector<std::shared_ptr<Queue>> ended GUARDED_BY(mutex);  // their threads have nothing left to do

  void run(const std::stop_token& stop, const Closers::Start& start) EXCLUDES(mutex);
};

void Closer::take(Fd fd) {
  if (!fd) return;
  {
    const MutexLock lock(queue_->mutex);
    queue_->waiting.push_back(std::move(fd));
    if (std::exchange(queue_->running, true)) return;
  }
  const MutexLock lock(starter_->mutex);
  starter_->idle.push_back(queue_);
  starter_->wanted.notify_one();
}

bool Closer::full() const {
  const MutexLock lock(queue_->mutex);
  return queue_->waiting.size() >= kMost;
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

void Closer::Starter::run(const std::stop_token& stop, const Closers::Start& start) {
  constexpr std::chrono::milliseconds kBetweenTries{50};
  MutexLock lock(mutex);
  while (!stop.stop_requested()) {
    if (idle.empty() && ended.empty()) {
      wanted.wait(lock, stop);
      continue;
    }
    auto joined = std::exchange(ended, {});
    const auto queue = idle.empty() ? nullptr : idle.front();
    if (queue) idle.pop_front();
    lock.unlock();
    joined.clear();
    bool started = true;
    try {
      // Joins the queue's previous thread, which takes no lock any more.
      if (queue) queue->thread = start([raw = queue.get()] { raw->run(); });
    } catch (const std::system_error&) {  // no thread can be started now
      started = false;
    }
    lock.lock();
    if (started) continue;
    idle.push_back(queue);
    wanted.wait_until(lock, stop, std::chrono::steady_clock::now() + kBetweenTries);
  }
}

Closers::Closers() : Closers([](std::function<void()> run) { return Thread("arbiter-close", std::move(run)); }) {}

Closers::Closers(Start start)
    : starter_(std::make_shared<Closer::Starter>()),
      starts_(Thread("arbiter-closers", [starter = starter_, start = std::move(start)](const std::stop_token& stop) {
        starter->run(stop, start);
      })) {}

Closer Closers::open() { return {starter_, queues_.emplace_back(std::make_shared<Closer::Queue>())}; }

void Closers::reap() {
  std::vector<std::shared_ptr<Closer::Queue>> ended;
  std::erase_if(queues_, [&](const std::shared_ptr<Closer::Queue>& queue) {
    if (queue.use_count() > 1) return false;
    {
      const MutexLock lock(queue->mutex);
      if (queue->running) return false;
    }
    ended.push_back(queue);
    return true;
  });
  if (ended.empty()) return;
  const MutexLock lock(starter_->mutex);
  for (auto& queue : ended) starter_->ended.push_back(std::move(queue));
  starter_->wanted.notify_one();
}

Closers::~Closers() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::vector<std::shared_ptr<Closer::Queue>> running;
  for (const auto& queue : queues_) {
    MutexLock lock(queue->mutex);
    while (queue->running && queue->ended.wait_until(lock, end) == std::cv_status::no_timeout) {
    }
    if (queue->running) running.push_back(queue);
  }
  starts_.request_stop();
  starts_.join();
  static auto& left = *new std::vector<std::shared_ptr<Closer::Queue>>;  // never freed: their threads use them
  left.insert(left.end(), running.begin(), running.end());
}

}  // namespace carve::arbiter
