#include "adapter/process/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sstream>

#include "adapter/process/text_file.h"

namespace carve::process {
namespace {

int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

void default_signals() {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Moves the kept descriptors to 3, 4, … and the error pipe after them; closes all others. Uses only system calls,
/// because it runs between fork and exec.
int arrange_descriptors(const int* keep, int count, int error_pipe) {
  const int safe = 3 + count + 1;
  int moved[16];
  for (int i = 0; i < count; ++i) moved[i] = ::fcntl(keep[i], F_DUPFD, safe);
  const int pipe_moved = ::fcntl(error_pipe, F_DUPFD, safe);
  for (int i = 0; i < count; ++i) ::dup2(moved[i], 3 + i);
  const int pipe_at = 3 + count;
  ::dup2(pipe_moved, pipe_at);
  ::fcntl(pipe_at, F_SETFD, FD_CLOEXEC);
  if (::syscall(SYS_close_range, static_cast<unsigned>(safe), ~0U, 0U) != 0) {
    for (int fd = safe; fd < 4096; ++fd) ::close(fd);  // kernels before 5.9
  }
  return pipe_at;
}

struct ChildPlan {
  const char* program;
  char* const* argv;
  const int* keep;
  int keep_count;
  int error_pipe;
  int log_fd;
  pid_t parent;
  bool own_session;
  bool die_with_parent;
  bool no_input;
  int output;
  char* const* environment;
};

[[noreturn]] void run_child(const ChildPlan& plan) {
  default_signals();
  if (plan.own_session) ::setsid();
  if (plan.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);
  }
  if (plan.log_fd >= 0) {
    ::dup2(plan.log_fd, 1);
    ::dup2(plan.log_fd, 2);
  }
  if (plan.output >= 0) ::dup2(plan.output, 1);
  if (plan.log_fd >= 0 || plan.no_input) {
    const int null_fd = ::open("/dev/null", O_RDONLY);
    if (null_fd >= 0) ::dup2(null_fd, 0);
  }
  const int error_pipe = arrange_descriptors(plan.keep, plan.keep_count, plan.error_pipe);
  ::execve(plan.program, plan.argv, plan.environment);
  const int err = errno;
  const ssize_t ignored = ::write(error_pipe, &err, sizeof(err));
  static_cast<void>(ignored);
  ::_exit(127);
}

/// The start time of a process in clock ticks since boot. PID and start time together identify one process uniquely.
/// 0: the process has ended.
///   source  proc_pid_stat(5): starttime is field 22, the name is field 2
std::uint64_t start_of(pid_t pid) {
  const auto stat = read_text("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat ? stat->rfind(") ") : std::string::npos;  // a process name may contain any character
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat->substr(name_end + 2));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t start = 0;
  fields >> start;
  return start;
}

}  // namespace

Result<Child> spawn(const SpawnOptions& options) {
  if (options.keep.size() > 16) return fail(Code::kInternal, "spawn: too many descriptors");
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return tl::unexpected(errno_error(errno, "pipe"));
  Fd read_end(pipe_ends[0]);
  Fd write_end(pipe_ends[1]);
  Fd log;
  if (!options.log_file.empty()) {
    log.reset(::open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
    if (!log) return tl::unexpected(errno_error(errno, "open " + options.log_file));
  }
  std::vector<char*> argv = {const_cast<char*>(options.program.c_str())};
  for (const auto& arg : options.args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  if (options.environment) {
    for (const auto& one : *options.environment) environment.push_back(const_cast<char*>(one.c_str()));
    environment.push_back(nullptr);
  }
  const ChildPlan plan = {
      options.program.c_str(), argv.data(), options.keep.data(), static_cast<int>(options.keep.size()),
      write_end.get(),         log.get(),   ::getpid(),          options.own_session,
      options.die_with_parent, options.no_input, options.output,
      options.environment ? environment.data() : environ};
  const pid_t pid = ::fork();
  if (pid < 0) return tl::unexpected(errno_error(errno, "fork"));
  if (pid == 0) run_child(plan);
  write_end.reset();
  Child child{pid, Fd(pidfd_open(pid))};
  int err = 0;
  ssize_t n;
  do {
    n = ::read(read_end.get(), &err, sizeof(err));
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    ::waitpid(pid, nullptr, 0);
    return tl::unexpected(errno_error(err, "execute " + options.program));
  }
  return child;
}

bool is_gone(const Child& child) { return wait_gone(child, std::chrono::milliseconds(0)); }

bool wait_gone(const Child& child, std::chrono::milliseconds timeout) {
  if (!child.pidfd) return true;
  pollfd item = {child.pidfd.get(), POLLIN, 0};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int n = ::poll(&item, 1, static_cast<int>(std::max<long long>(0, left.count())));
    if (n > 0) break;
    if (n == 0) return false;
    if (errno != EINTR) return false;
  }
  ::waitpid(child.pid, nullptr, WNOHANG);  // ECHILD: it is not a child of this process
  return true;
}

void send_signal(const Child& child, int signal) {
  if (child.pidfd) ::syscall(SYS_pidfd_send_signal, child.pidfd.get(), signal, nullptr, 0);
}

void stop_child(const Child& child, std::chrono::milliseconds grace) {
  if (!child.pidfd) return;
  send_signal(child, SIGTERM);
  send_signal(child, SIGCONT);
  if (wait_gone(child, grace)) return;
  send_signal(child, SIGKILL);
  static_cast<void>(wait_gone(child, std::chrono::seconds(2)));
}

Result<Child> open_process(pid_t pid) {
  Child child{pid, Fd(pidfd_open(pid))};
  if (!child.pidfd) return tl::unexpected(errno_error(errno, "process " + std::to_string(pid)));
  return child;
}

Result<LockFile> LockFile::take(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return tl::unexpected(errno_error(errno, "open " + path));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    const auto text = read_text(path, 64);
    return fail(Code::kAlreadyExists,
                path + " is locked by process " + (text && !text->empty() ? text->substr(0, text->find(' ')) : "?"));
  }
  LockFile lock(std::move(fd));
  CARVE_TRY_VOID(lock.write_pid(::getpid()));
  return lock;
}

Result<std::optional<Child>> LockFile::holder(const std::string& path) {
  constexpr int kTakenMs = 50;  // covers the time from the lock to the PID in it, and from a fork to its exec
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) return std::nullopt;
  if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
  pid_t pid = 0;
  for (int look = 0; look < 2; ++look) {
    if (look > 0) ::poll(nullptr, 0, kTakenMs);
    if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) return std::nullopt;
    CARVE_TRY(const auto text, read_text(path, 64));
    std::istringstream words(text);
    std::uint64_t started = 0;
    pid = 0;
    if (!(words >> pid) || pid <= 0) continue;
    auto child = open_process(pid);  // before its start time is read, so that the PID cannot be reused in between
    const bool has_start =
        static_cast<bool>(words >> started);  // false: an earlier release of Carve wrote no start time
    if (child && (!has_start || start_of(pid) == started)) return std::optional<Child>(std::move(*child));
  }
  return fail(Code::kFailedPrecondition, path + " is locked, but not by process " + std::to_string(pid) +
                                             " (its PID is in the file; lsof lists the processes that use it)");
}

Result<void> stop_holders(const std::vector<std::string>& locks, std::chrono::milliseconds grace) {
  Result<void> all;
  for (const auto& path : locks) {
    const auto holder = LockFile::holder(path);
    if (holder && *holder) stop_child(**holder, grace);
    if (!holder && all) all = tl::unexpected(holder.error());
  }
  return all;
}

Result<void> LockFile::write_pid(pid_t pid) {
  const std::string text = std::to_string(pid) + " " + std::to_string(start_of(pid));
  if (::ftruncate(fd_.get(), 0) != 0 ||
      ::pwrite(fd_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return tl::unexpected(errno_error(errno, "write lock file"));
  }
  return {};
}

}  // namespace carve::process
