#pragma once

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "adapter/process/packets.h"
#include "base/fd.h"
#include "port/kept_agent.h"

namespace carve::test {

/// An agent as a thread of the test, in place of its keeper's child process. After a kill it cannot send anything any
/// more; what it does to the node until its thread ends is the work of a dead agent and must do no harm.
class ThreadAgent final : public KeptAgent {
 public:
  /// Runs until its stop; takes the line.
  using Life = std::function<void(int line, std::uint64_t crashes, const std::stop_token& stop)>;
  explicit ThreadAgent(Life life) : life_(std::move(life)), told_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~ThreadAgent() override { kill(); }

  Result<void> start(std::uint64_t crashes) override {
    CARVE_TRY(auto ends, process::packet_pair());
    const std::lock_guard lock(mutex_);
    line_ = std::move(ends.first);
    lives_ = true;
    ++starts_;
    const int line = ends.second.release();
    thread_ = std::jthread([this, line, crashes, starts = starts_](const std::stop_token& stop) {
      while (held && !stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stop.stop_requested() ? static_cast<void>(::close(line)) : life_(line, crashes, stop);
      const std::lock_guard inner(mutex_);
      if (lives_ && starts == starts_) end({exits_with, 0});
    });
    return {};
  }
  bool send(const std::string& packet) override {
    const std::lock_guard lock(mutex_);
    return lives_ && process::send_packet(line_.get(), packet).has_value();
  }
  std::optional<std::string> receive() override {
    const std::lock_guard lock(mutex_);
    std::string packet;
    if (!line_ || process::receive_packet(line_.get(), &packet) != process::Received::kPacket) return std::nullopt;
    return packet;
  }
  std::optional<ProcessEnd> ended() override {
    const std::lock_guard lock(mutex_);
    std::uint64_t drained = 0;
    static_cast<void>(::read(told_.get(), &drained, sizeof(drained)));
    return std::exchange(end_, std::nullopt);
  }
  void signal(int number) override {
    if (number == SIGKILL) return kill();
    const std::lock_guard lock(mutex_);
    thread_.request_stop();
  }
  [[nodiscard]] std::vector<int> handles() const override {
    const std::lock_guard lock(mutex_);
    if (!lives_) return {told_.get()};
    return {told_.get(), line_.get()};
  }

  /// Ends the agent immediately, wherever it is. Called from any thread except the agent's own.
  void kill() {
    std::jthread dead;
    {
      const std::lock_guard lock(mutex_);
      if (!lives_) return;
      ::shutdown(line_.get(), SHUT_RDWR);
      dead = std::move(thread_);
      end({0, SIGKILL});
    }
  }
  [[nodiscard]] int starts() const {
    const std::lock_guard lock(mutex_);
    return starts_;
  }
  std::atomic<int> exits_with = 0;  // the exit code after a stop signal
  std::atomic<bool> held = false;  // a started agent does not begin yet

 private:
  void end(const ProcessEnd& how) {  // needs the lock
    lives_ = false;
    end_ = how;
    const std::uint64_t one = 1;
    static_cast<void>(::write(told_.get(), &one, sizeof(one)));
  }

  Life life_;
  Fd told_;
  mutable std::mutex mutex_;
  Fd line_;
  std::jthread thread_;
  bool lives_ = false;
  int starts_ = 0;
  std::optional<ProcessEnd> end_;
};

}  // namespace carve::test
