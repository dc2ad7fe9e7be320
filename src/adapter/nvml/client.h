#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "adapter/process/spawn.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "port/gpu.h"

namespace carve::nvml {

/// How to start the worker and how long to wait for its answers.
struct WorkerOptions {
  std::string program;  // this binary; run as `<program> nvml-worker --driver-root …`
  std::vector<std::string> args;
  std::string log_file;
  // The first call initialises the cards, which takes seconds for each card without the persistence daemon.
  std::chrono::milliseconds inventory_deadline{15'000};
  std::chrono::milliseconds usage_deadline{1'000};
  std::chrono::milliseconds back_off{1'000};  // between two starts after a failure; doubles up to 30 s
};

/// The Gpu port, implemented by a child process that may hang or die in the vendor's library without harm to the agent.
/// A worker that misses its deadline is killed, and the next call starts another one. The agent itself does not load
/// the vendor's library.
class Client final : public Gpu {
 public:
  Client(WorkerOptions options, const Clock& clock, Log& log);
  ~Client() override;

  Result<GpuInventory> inventory() override;
  Result<std::vector<GpuUsage>> usage() override;
  std::vector<GpuEvent> wait_events(std::chrono::milliseconds timeout) override;
  void renew() override;
  [[nodiscard]] GpuState state() const override { return state_.load(); }
  [[nodiscard]] std::string reason() const override;
  /// The PID of the running worker; 0: there is none. Tests use it to stop the worker.
  [[nodiscard]] pid_t worker_pid() const { return worker_pid_.load(); }

 private:
  Result<std::vector<char>> ask(std::uint32_t op, std::uint32_t card, std::chrono::milliseconds deadline)
      REQUIRES(mutex_);
  Result<GpuInventory> inventory_locked() REQUIRES(mutex_);
  Result<GpuUsage> usage_of(std::size_t card) REQUIRES(mutex_);
  Result<void> start() REQUIRES(mutex_);
  void drop(GpuState state, const std::string& why) REQUIRES(mutex_);
  void set_state(GpuState state, const std::string& why) EXCLUDES(reason_mutex_);

  WorkerOptions options_;
  const Clock& clock_;
  Log& log_;
  Mutex mutex_;  // held during a call, so that there is one at a time
  process::Child worker_ GUARDED_BY(mutex_);
  Fd socket_ GUARDED_BY(mutex_);
  // One socket pair for all workers, so that events that a worker sent before it died are not lost.
  Fd events_;
  Fd workers_events_;
  std::uint32_t sequence_ GUARDED_BY(mutex_) = 0;
  std::uint64_t generation_ GUARDED_BY(mutex_) = 0;
  std::vector<CardId> cards_ GUARDED_BY(mutex_);
  std::chrono::milliseconds back_off_ GUARDED_BY(mutex_);
  Clock::Time not_before_ GUARDED_BY(mutex_){};
  std::atomic<GpuState> state_{GpuState::kStarting};
  std::atomic<pid_t> worker_pid_{0};
  mutable Mutex reason_mutex_;
  std::string reason_ GUARDED_BY(reason_mutex_);
};

}  // namespace carve::nvml
