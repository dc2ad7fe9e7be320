#include "adapter/process/child_agent.h"

#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "adapter/process/packets.h"

namespace carve::process {

ChildAgent::ChildAgent(std::string program, std::vector<std::string> args)
    : program_(std::move(program)), args_(std::move(args)) {}

ChildAgent::~ChildAgent() {
  if (!child_.pidfd) return;
  send_signal(child_, SIGKILL);
  static_cast<void>(wait_gone(child_, std::chrono::seconds(2)));
}

Result<void> ChildAgent::start(std::uint64_t crashes) {
  CARVE_TRY(auto ends, packet_pair());
  auto args = args_;
  args.push_back("--kept-by=" + std::to_string(kLine));
  args.push_back("--crashes=" + std::to_string(crashes));
  CARVE_TRY(child_, spawn({.program = program_, .args = args, .keep = {ends.second.get()}, .log_file = "",
                           .die_with_parent = true}));
  line_ = std::move(ends.first);
  line_ended_ = false;
  return {};
}

bool ChildAgent::send(const std::string& packet) { return line_ && send_packet(line_.get(), packet).has_value(); }

std::optional<std::string> ChildAgent::receive() {
  std::string packet;
  const auto got = line_ ? receive_packet(line_.get(), &packet) : Received::kNothing;
  // The connection of a process that has ended stays readable forever; ended() reports the end of the process.
  line_ended_ = line_ended_ || got == Received::kEnd;
  if (got != Received::kPacket) return std::nullopt;
  return packet;
}

std::optional<ProcessEnd> ChildAgent::ended() {
  if (!child_.pidfd) return std::nullopt;
  int status = 0;
  const pid_t got = ::waitpid(child_.pid, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return std::nullopt;
  child_.pidfd.reset();
  child_.pid = 0;
  if (got < 0) return ProcessEnd{1, 0};  // another thread has waited for it: how it ended is unknown
  if (WIFSIGNALED(status)) return ProcessEnd{0, WTERMSIG(status)};
  return ProcessEnd{WEXITSTATUS(status), 0};
}

void ChildAgent::signal(int number) { send_signal(child_, number); }

std::vector<int> ChildAgent::handles() const {
  std::vector<int> all;
  if (line_ && !line_ended_) all.push_back(line_.get());
  if (child_.pidfd) all.push_back(child_.pidfd.get());
  return all;
}

}  // namespace carve::process
