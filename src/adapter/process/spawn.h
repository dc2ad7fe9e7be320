#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

// Carve's processes: start them, watch them by pidfd, and lock files that show which of them run.
namespace carve::process {

struct SpawnOptions {
  std::string program;            // a path
  std::vector<std::string> args;  // without argv[0]
  std::vector<int> keep;          // descriptors that the child gets as 3, 4, …; all others are closed
  std::string log_file;           // stdout and stderr are appended to it; empty: inherited
  bool own_session = false;       // a new session: the terminal's signals and hangup do not reach the child
  bool die_with_parent = false;
  bool no_input = false;  // /dev/null as standard input; else inherited (if there is no log_file)
  int output = -1;        // the child's standard output; -1: inherited, or the log file
  std::optional<std::vector<std::string>> environment = {};  // "NAME=value"; nullopt: that of this process
};

struct Child {
  pid_t pid = 0;
  Fd pidfd;  // readable when the process has ended
};

/// Starts a process with default signal dispositions and no blocked signals. If the program cannot be executed, the
/// call returns the error; there is no child with an exit code.
[[nodiscard]] Result<Child> spawn(const SpawnOptions& options);

/// True when the process has ended. Collects the exit status of a child.
[[nodiscard]] bool is_gone(const Child& child);
/// Waits until the process has ended; false: the timeout expired first.
[[nodiscard]] bool wait_gone(const Child& child, std::chrono::milliseconds timeout);
/// Sends a signal by pidfd, so that it cannot reach another process that has the same PID later.
void send_signal(const Child& child, int signal);
/// Sends SIGTERM, and SIGKILL after `grace`. Returns when the process has ended, or 2 s later if it is stuck in the
/// kernel.
void stop_child(const Child& child, std::chrono::milliseconds grace);

/// A lock file shows that a process runs. The lock belongs to the open file: a child that keeps the descriptor keeps
/// the lock, and the kernel releases it when the last of these processes ends, for any reason. Only the owner can open
/// the file, because every process that can read a file can lock it.
class LockFile {
 public:
  /// Takes the lock.
  ///   errors  kAlreadyExists: another process has the lock (the text has its PID); the system's
  [[nodiscard]] static Result<LockFile> take(const std::string& path);
  /// A pidfd of the process that the locked file names by its PID; nullopt: the file is not locked. Waits 50 ms once if
  /// the PID is not that of a running process, because the lock may just have been taken.
  ///   errors  kPermissionDenied: the file belongs to another user; kFailedPrecondition: the file is locked, but the
  ///           process in it has ended (another process may have its PID now)
  [[nodiscard]] static Result<std::optional<Child>> holder(const std::string& path);
  /// Writes the PID of the process that has the lock (after a fork: the child's).
  [[nodiscard]] Result<void> write_pid(pid_t pid);
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit LockFile(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

/// Stops the process that holds each of these locks. If the holder of one lock cannot be determined, the others are
/// still stopped.
///   errors  the first error of LockFile::holder()
[[nodiscard]] Result<void> stop_holders(const std::vector<std::string>& locks, std::chrono::milliseconds grace);

/// A pidfd of a process that need not be a child.
///   errors  kNotFound: the process does not exist; the system's
[[nodiscard]] Result<Child> open_process(pid_t pid);

}  // namespace carve::process
