#include <pthread.h>
#include <signal.h>

#include <deque>

#include "base/mutex.h"
#include "base/thread.h"
#include "sim/cuda/stream.h"

// Host functions. One thread per process runs each one when its stream has reached it. Work that the host does on the
// device's behalf (moving bytes, sample kernels) happens in the call, which is a legal order. Behind a host function
// that has not run yet, this thread does that work too.
namespace carve::sim::cu {
namespace {

struct Task {
  Stream* stream;
  std::uint32_t index;
  std::uint64_t number;  // number of the kHost command in its stream
  std::function<void()> function;
};

class HostThread {
 public:
  static HostThread& get() {
    // Never destroyed: the thread runs the program's functions and ends with the process.
    static HostThread* host = new HostThread();
    return *host;
  }

  /// Appends the command and the task as one step. The thread runs tasks in this order, so it must be the order of the
  /// commands: a task may depend on earlier commands of the streams, never on later ones.
  void append(Stream* stream, std::function<void()> function) {
    // A separate lock from the queue's, because appending may wait for a full ring.
    const MutexLock order(order_);
    const std::uint64_t after = submit(stream, CommandKind::kHost, 0);
    const MutexLock lock(mutex_);
    if (!thread_.running()) start();
    tasks_.push_back({stream, stream->index, after - 1, std::move(function)});
    changed_.notify_one();
  }

 private:
  void start() REQUIRES(mutex_) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);  // this thread must not receive the program's signals
    thread_ = Thread("sim-host-func", [this] { run(); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
  }

  void run() {
    for (;;) {
      Task task;
      {
        MutexLock lock(mutex_);
        while (tasks_.empty()) changed_.wait(lock);
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (wait_for({task.index, task.number}) != CUDA_SUCCESS) return;
      task.function();
      task.stream->host_pending.fetch_sub(1);
      Driver::get().channel()->streams[task.index].host_done.store(task.number + 1);
      ring(Driver::get().bell());
    }
  }

  Mutex order_ ACQUIRED_BEFORE(mutex_);
  Mutex mutex_;
  Condition changed_;
  std::deque<Task> tasks_ GUARDED_BY(mutex_);
  Thread thread_ GUARDED_BY(mutex_);
};

}  // namespace

void append_host(Stream* stream, std::function<void()> function) {
  stream->host_pending.fetch_add(1);
  HostThread::get().append(stream, std::move(function));
}

void in_order(Stream* stream, std::function<void()> action) {
  if (stream->host_pending.load() == 0) return action();
  append_host(stream, std::move(action));
}

}  // namespace carve::sim::cu
