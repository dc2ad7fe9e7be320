#pragma once

#include <string>
#include <vector>

#include "adapter/process/spawn.h"
#include "base/fd.h"
#include "port/kept_agent.h"

namespace carve::process {

/// The agent as a child process: the same program, started with the connection to its keeper as descriptor 3. The agent
/// is killed when its keeper dies (more precisely: when the thread that started it ends).
class ChildAgent final : public KeptAgent {
 public:
  static constexpr int kLine = 3;
  /// `args`: without argv[0]; "--kept-by=3" and "--crashes=N" are added.
  ChildAgent(std::string program, std::vector<std::string> args);
  ~ChildAgent() override;

  Result<void> start(std::uint64_t crashes) override;
  bool send(const std::string& packet) override;
  std::optional<std::string> receive() override;
  std::optional<ProcessEnd> ended() override;
  void signal(int number) override;
  [[nodiscard]] std::vector<int> handles() const override;
  [[nodiscard]] pid_t pid() const { return child_.pid; }

 private:
  std::string program_;
  std::vector<std::string> args_;
  Child child_;
  Fd line_;
  bool line_ended_ = false;
};

}  // namespace carve::process
