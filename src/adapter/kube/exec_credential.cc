#include "adapter/kube/exec_credential.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "adapter/process/spawn.h"

namespace carve::kube {
namespace {

using std::chrono::steady_clock;
using Terminal = codec::ExecPlugin::Terminal;

constexpr std::size_t kLargestOutput = 1U << 20U;
constexpr int kPatienceAtTerminal = 5;  // a person looks for a password, or for the telephone that shows a code
constexpr std::int64_t kEarly_s = 10;   // a call that begins with a credential should end with it
constexpr auto kBetween = std::chrono::seconds(1);
constexpr auto kAfterFailure = std::chrono::seconds(10);

tl::unexpected<Error> failed(const codec::ExecPlugin& plugin, Code code, const std::string& what) {
  const auto hint = plugin.install_hint.empty() ? std::string() : "\n" + plugin.install_hint;
  return fail(code, fmt::format("user.exec.command \"{}\": {}{}", plugin.command.substr(0, 300), what, hint));
}

bool can_execute(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

/// As the shell finds it, but never in the folder where we happen to be.
std::optional<std::string> in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view left(path == nullptr ? "" : path);
  while (!left.empty()) {
    const auto colon = left.find(':');
    const std::string folder(left.substr(0, colon));
    left = colon == std::string_view::npos ? std::string_view() : left.substr(colon + 1);
    if (folder.starts_with('/') && can_execute(folder + "/" + name)) return folder + "/" + name;
  }
  return std::nullopt;
}

std::vector<std::string> environment_of(const codec::ExecPlugin& plugin, const std::string& info) {
  auto added = plugin.environment;
  added.emplace_back("KUBERNETES_EXEC_INFO", info);
  std::vector<std::string> all;
  const auto ours_stays = [&](std::string_view one) {
    const auto name = one.substr(0, one.find('='));
    return std::none_of(added.begin(), added.end(), [&](const auto& other) { return other.first == name; });
  };
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    if (ours_stays(*one)) all.emplace_back(*one);
  }
  for (auto one = added.begin(); one != added.end(); ++one) {  // of two of a name the last counts
    const bool again = std::any_of(one + 1, added.end(), [&](const auto& other) { return other.first == one->first; });
    if (!again) all.push_back(one->first + "=" + one->second);
  }
  return all;
}

/// A plug-in that asks for a password turns the echo off; who is killed meanwhile does not turn it on again.
class TerminalAsItWas {
 public:
  explicit TerminalAsItWas(bool used)
      : held_(used && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp() && ::tcgetattr(STDIN_FILENO, &state_) == 0) {}
  ~TerminalAsItWas() {
    if (held_) ::tcsetattr(STDIN_FILENO, TCSANOW, &state_);
  }
  TerminalAsItWas(const TerminalAsItWas&) = delete;
  TerminalAsItWas& operator=(const TerminalAsItWas&) = delete;

 private:
  termios state_ = {};
  const bool held_;
};

/// A plug-in that runs. Whatever happens, it is gone and waited for when this is.
class Running {
 public:
  Running(Child child, Fd output, bool own_session)
      : child_(std::move(child)), output_(std::move(output)), own_session_(own_session) {}
  ~Running() {
    if (waited_for_) return;
    kill();
    int ignored = 0;
    while (::waitpid(child_.pid, &ignored, 0) < 0 && errno == EINTR) {
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Reads until it has ended: what it left running may hold its output open for ever.
  Result<std::string> read(steady_clock::time_point deadline) {
    std::string text;
    for (;;) {
      pollfd items[] = {{child_.pidfd.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
      if (!child_.pidfd && !output_) return text;  // kernels without pidfds: its output's end has to do
      if (left <= 0) return fail(Code::kDeadlineExceeded, "");
      const int ready = ::poll(items, 2, static_cast<int>(left));
      if (ready < 0 && errno != EINTR) return tl::unexpected(errno_error(errno, "poll"));
      if (ready <= 0) continue;
      if (!drain(&text)) return fail(Code::kResourceExhausted, "");
      if ((items[0].revents & POLLIN) != 0) return text;
    }
  }
  /// How it ended; nullopt: somebody else has waited for it.
  std::optional<int> status() {
    int status = 0;
    pid_t got = 0;
    do {
      got = ::waitpid(child_.pid, &status, 0);
    } while (got < 0 && errno == EINTR);
    waited_for_ = true;
    return got == child_.pid ? std::optional(status) : std::nullopt;
  }

 private:
  /// What is there now; false: too much.
  bool drain(std::string* text) {
    char buffer[4096];
    while (output_) {
      const ssize_t n = ::read(output_.get(), buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return true;
      if (n == 0) output_.reset();  // closed: poll takes no notice of it any more
      text->append(buffer, static_cast<std::size_t>(n));
      if (text->size() > kLargestOutput) return false;
    }
    return true;
  }
  void kill() {
    // Not waited for yet: its number, and with it its group's, is nobody else's.
    ::kill(own_session_ ? -child_.pid : child_.pid, SIGKILL);
  }

  Child child_;
  Fd output_;
  const bool own_session_;
  bool waited_for_ = false;
};

}  // namespace

Result<codec::ExecCredential> run_plugin(const codec::ExecPlugin& plugin, const codec::ExecCluster& cluster,
                                         const PluginRun& run) {
  if (plugin.terminal == Terminal::kAlways && !run.terminal) {
    return failed(plugin, Code::kFailedPrecondition,
                  "user.exec.interactiveMode is Always, and standard input is no terminal");
  }
  const bool interactive = plugin.terminal != Terminal::kNever && run.terminal;
  auto program = std::optional(plugin.command);
  if (plugin.command.find('/') == std::string::npos) program = in_path(plugin.command);
  if (!program) return failed(plugin, Code::kNotFound, "no such program in PATH");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return tl::unexpected(errno_error(errno, "pipe"));
  Fd output(ends[0]);
  Fd written(ends[1]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  const TerminalAsItWas terminal(interactive);
  auto child = spawn({.program = *program,
                      .args = plugin.args,
                      .keep = {},
                      .log_file = {},
                      .own_session = !interactive,
                      .die_with_parent = !interactive,  // else it could not put the terminal back as it was
                      .no_input = !interactive,
                      .output = written.get(),
                      .environment = environment_of(plugin, codec::exec_info(plugin, cluster, interactive))});
  if (!child) return failed(plugin, child.error().code, child.error().what);
  written.reset();
  Running running(std::move(*child), std::move(output), !interactive);
  const auto limit = run.limit * (interactive ? kPatienceAtTerminal : 1);
  const auto text = running.read(steady_clock::now() + limit);
  if (!text && text.error().code == Code::kDeadlineExceeded)
    return failed(plugin, Code::kDeadlineExceeded, fmt::format("not done after {} ms; killed", limit.count()));
  if (!text && text.error().code == Code::kResourceExhausted)
    return failed(plugin, Code::kResourceExhausted, fmt::format("wrote more than {} bytes; killed", kLargestOutput));
  if (!text) return failed(plugin, text.error().code, text.error().what);
  const auto status = running.status();
  if (status && WIFSIGNALED(*status))
    return failed(plugin, Code::kPermissionDenied, fmt::format("killed by signal {}", WTERMSIG(*status)));
  if (status && WEXITSTATUS(*status) != 0)
    return failed(plugin, Code::kPermissionDenied, fmt::format("exit status {}", WEXITSTATUS(*status)));
  auto said = codec::parse_exec_credential(*text, plugin.api_version);
  if (!said) return failed(plugin, said.error().code, said.error().what);
  return said;
}

bool KeptCredential::serves() const {
  if (!held_ || refused_) return false;
  const auto now = std::chrono::floor<std::chrono::seconds>(clock_.wall_now()).time_since_epoch().count();
  return !held_->expires_unix_s || now < *held_->expires_unix_s;
}

bool KeptCredential::is_due() const {
  if (failed_) return true;  // of() says when it is tried again
  if (!held_) return false;  // nobody has asked yet
  if (clock_.now() < ran_ + kBetween) return false;
  const auto now = std::chrono::floor<std::chrono::seconds>(clock_.wall_now()).time_since_epoch().count();
  return refused_ || (held_->expires_unix_s && now >= *held_->expires_unix_s - kEarly_s);
}

Result<codec::ExecCredential> KeptCredential::of(const codec::ExecPlugin& plugin, const codec::ExecCluster& cluster) {
  if (plugin != plugin_ || cluster != cluster_) {
    plugin_ = plugin;
    cluster_ = cluster;
    held_.reset();
    failed_.reset();
    refused_ = false;
  }
  const bool alone = failed_ && clock_.now() < ran_ + kAfterFailure;
  if (!alone && (!held_ || is_due())) {
    auto said = run_plugin(plugin, cluster, run_);
    ran_ = clock_.now();
    failed_ = said ? std::nullopt : std::optional(said.error());
    if (said) {
      held_ = std::move(*said);
      refused_ = false;
      return *held_;
    }
  }
  if (failed_ && !serves()) return tl::unexpected(*failed_);
  return *held_;
}

}  // namespace carve::kube
