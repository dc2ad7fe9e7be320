#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "adapter/process/spawn.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/gpu.h"

namespace carve {

/// How to start the worker and how long to wait for its answers.
struct NvmlWorkerOptions {
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
class NvmlClient final : public Gpu {
 public:
  NvmlClient(NvmlWorkerOptions options, const Clock& clock, Log& log);
  ~NvmlClient() override;

  Result<GpuInventory> inventory() override;
  Result<std::vector<GpuUsage>> usage() override;
  std::vector<GpuEvent> wait_events(std::chrono::milliseconds timeout) override;
  void renew() override;
  [[nodiscard]] GpuState state() const override { return state_.load(); }
  [[nodiscard]] std::string reason() const override;
  /// The PID of the running worker; 0: there is none. Tests use it to stop the worker.
  [[nodiscard]] pid_t worker_pid() const { return worker_pid_.load(); }

 private:
  Result<std::vector<char>> ask(std::uint32_t op, std::uint32_t card, std::chrono::milliseconds deadline);
  Result<GpuInventory> inventory_locked();
  Result<GpuUsage> usage_of(std::size_t card);
  Result<void> start();
  void drop(GpuState state, const std::string& why);
  void set_state(GpuState state, const std::string& why);

  NvmlWorkerOptions options_;
  const Clock& clock_;
  Log& log_;
  std::mutex mutex_;  // one call at a time
  Child worker_;
  Fd socket_;
  // One socket pair for all workers, so that events that a worker sent before it died are not lost.
  Fd events_;
  Fd workers_events_;
  std::uint32_t sequence_ = 0;
  std::uint64_t generation_ = 0;
  std::vector<CardId> cards_;
  std::chrono::milliseconds back_off_;
  Clock::Time not_before_{};
  std::atomic<GpuState> state_{GpuState::kStarting};
  std::atomic<pid_t> worker_pid_{0};
  mutable std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace carve
