#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "adapter/process/spawn.h"
#include "base/clock.h"
#include "base/result.h"

namespace carve::cmd {

/// A process of ours that outlives its supervisor: it keeps the lock <runtime>/<name>.lock as long as it
/// lives, so a new supervisor finds it, and a second one cannot be started.
class Service {
 public:
  Service(std::string name, std::string program, std::vector<std::string> args, std::string runtime_dir);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Takes over a living one (true) or finds none.
  ///   errors  kFailedPrecondition: one lives that was started with other arguments
  [[nodiscard]] Result<bool> adopt();
  [[nodiscard]] Result<void> start();
  /// Starts it again when it is gone and its back-off is over. True: it was gone.
  bool tend(Clock::Time now);
  [[nodiscard]] bool lives() const;
  void stop(std::chrono::milliseconds grace);
  [[nodiscard]] int pidfd() const { return child_.pidfd.get(); }
  [[nodiscard]] pid_t pid() const { return child_.pid; }
  /// The end of its log, for "it died at once".
  [[nodiscard]] std::string last_words() const;
  /// Removes its lock and argument files.
  void forget();

 private:
  [[nodiscard]] std::string file(const char* kind) const { return runtime_dir_ + "/" + name_ + kind; }
  [[nodiscard]] std::string words() const;

  std::string name_;
  std::string program_;
  std::vector<std::string> args_;
  std::string runtime_dir_;
  Child child_;
  Clock::Time started_{};
  Clock::Time next_start_{};
  std::chrono::milliseconds back_off_{100};
  std::size_t log_start_ = 0;  // bytes that the log had when it was started
};

}  // namespace carve::cmd
