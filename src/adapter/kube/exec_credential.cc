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
constexpr int kPatienceAtTerminal = 5;  // a person may have to find a password or a phone with a code
constexpr std::int64_t kEarly_s = 10;   // the credential must stay valid until the end of a call that begins with it
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

/// Searches PATH like a shell, but never the current folder.
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
  const auto is_inherited = [&](std::string_view one) {
    const auto name = one.substr(0, one.find('='));
    return std::none_of(added.begin(), added.end(), [&](const auto& other) { return other.first == name; });
  };
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    if (is_inherited(*one)) all.emplace_back(*one);
  }
  for (auto one = added.begin(); one != added.end();
       ++one) {  // of two variables with the same name the last one is used
    const bool again = std::any_of(one + 1, added.end(), [&](const auto& other) { return other.first == one->first; });
    if (!again) all.push_back(one->first + "=" + one->second);
  }
  return all;
}

/// Restores the terminal's settings: a plug-in that asks for a password turns the echo off, and does not restore it
/// when it is killed.
class TerminalRestorer {
 public:
  explicit TerminalRestorer(bool used)
      : held_(used && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp() && ::tcgetattr(STDIN_FILENO, &state_) == 0) {}
  ~TerminalRestorer() {
    if (held_) ::tcsetattr(STDIN_FILENO, TCSANOW, &state_);
  }
  TerminalRestorer(const TerminalRestorer&) = delete;
  TerminalRestorer& operator=(const TerminalRestorer&) = delete;

 private:
  termios state_ = {};
  const bool held_;
};

/// A running plug-in. The destructor kills it, if it still runs, and waits for it.
class Running {
 public:
  Running(process::Child child, Fd output, bool own_session)
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

  /// Reads until the plug-in has ended, because its children may keep the output open forever.
  Result<std::string> read(steady_clock::time_point deadline) {
    std::string text;
    for (;;) {
      pollfd items[] = {{child_.pidfd.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
      if (!child_.pidfd && !output_) return text;  // kernels without pidfds: use the end of the output instead
      if (left <= 0) return fail(Code::kDeadlineExceeded, "");
      const int ready = ::poll(items, 2, static_cast<int>(left));
      if (ready < 0 && errno != EINTR) return tl::unexpected(errno_error(errno, "poll"));
      if (ready <= 0) continue;
      if (!drain(&text)) return fail(Code::kResourceExhausted, "");
      if ((items[0].revents & POLLIN) != 0) return text;
    }
  }
  /// The wait status; nullopt: another thread has waited for it.
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
  /// Reads the available output; false: it is too much.
  bool drain(std::string* text) {
    char buffer[4096];
    while (output_) {
      const ssize_t n = ::read(output_.get(), buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return true;
      if (n == 0) output_.reset();  // closed: poll() then ignores it
      text->append(buffer, static_cast<std::size_t>(n));
      if (text->size() > kLargestOutput) return false;
    }
    return true;
  }
  void kill() {
    // The process has not been waited for, so its PID and process group cannot belong to another process.
    ::kill(own_session_ ? -child_.pid : child_.pid, SIGKILL);
  }

  process::Child child_;
  Fd output_;
  const bool own_session_;
  bool waited_for_ = false;
};

}  // namespace

Result<codec::ExecCredential> run_plugin(const codec::ExecPlugin& plugin, const codec::ExecCluster& cluster,
                                         const PluginRun& run) {
  if (plugin.terminal == Terminal::kAlways && !run.terminal) {
    return failed(plugin, Code::kFailedPrecondition,
                  "user.exec.interactiveMode is Always, but standard input is not a terminal");
  }
  const bool interactive = plugin.terminal != Terminal::kNever && run.terminal;
  auto program = std::optional(plugin.command);
  if (plugin.command.find('/') == std::string::npos) program = in_path(plugin.command);
  if (!program) return failed(plugin, Code::kNotFound, "not found in PATH");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return tl::unexpected(errno_error(errno, "pipe"));
  Fd output(ends[0]);
  Fd written(ends[1]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
  const TerminalRestorer terminal(interactive);
  auto child = process::spawn({.program = *program,
                      .args = plugin.args,
                      .keep = {},
                      .log_file = {},
                      .own_session = !interactive,
                      .die_with_parent = !interactive,  // an interactive plug-in must be able to restore the terminal
                      .no_input = !interactive,
                      .output = written.get(),
                      .environment = environment_of(plugin, codec::exec_info(plugin, cluster, interactive))});
  if (!child) return failed(plugin, child.error().code, child.error().what);
  written.reset();
  Running running(std::move(*child), std::move(output), !interactive);
  const auto limit = run.limit * (interactive ? kPatienceAtTerminal : 1);
  const auto text = running.read(steady_clock::now() + limit);
  if (!text && text.error().code == Code::kDeadlineExceeded)
    return failed(plugin, Code::kDeadlineExceeded,
                  fmt::format("killed because it did not end within {} ms", limit.count()));
  if (!text && text.error().code == Code::kResourceExhausted)
    return failed(plugin, Code::kResourceExhausted,
                  fmt::format("killed because it wrote more than {} bytes", kLargestOutput));
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
  if (failed_) return true;  // of() decides when it runs again
  if (!held_) return false;  // of() has not been called yet
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
