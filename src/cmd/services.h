#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "adapter/process/spawn.h"
#include "base/clock.h"
#include "base/result.h"

namespace carve::cmd {

/// A process of Carve that outlives its supervisor. It holds the lock <runtime>/<name>.lock while it runs, so a new
/// supervisor finds it, and no second one can be started.
class Service {
 public:
  Service(std::string name, std::string program, std::vector<std::string> args, std::string runtime_dir);

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Takes over a running process. False: none runs.
  ///   errors  kFailedPrecondition: a process runs that was started with other arguments
  [[nodiscard]] Result<bool> adopt();
  [[nodiscard]] Result<void> start();
  /// Restarts the process when it has ended and its back-off is over. True: it had ended.
  bool tend(Clock::Time now);
  [[nodiscard]] bool lives() const;
  void stop(std::chrono::milliseconds grace);
  [[nodiscard]] int pidfd() const { return child_.pidfd.get(); }
  [[nodiscard]] pid_t pid() const { return child_.pid; }
  /// The end of its log, for the error text of a process that ended at its start.
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
  process::Child child_;
  Clock::Time started_{};
  Clock::Time next_start_{};
  std::chrono::milliseconds back_off_{100};
  std::size_t log_start_ = 0;  // bytes of the log at the last start
};

}  // namespace carve::cmd
