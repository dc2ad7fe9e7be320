#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

// Processes of ours: start them, watch them by pidfd, lock files that say who lives.
namespace carve {

struct SpawnOptions {
  std::string program;            // a path
  std::vector<std::string> args;  // without argv[0]
  std::vector<int> keep;          // descriptors that the child gets as 3, 4, …; all others are closed
  std::string log_file;           // stdout and stderr go there (appended); empty: inherited
  bool own_session = false;       // so that the terminal's signals and its end do not reach it
  bool die_with_parent = false;
  bool no_input = false;  // /dev/null as standard input, else it is inherited (as long as there is no log_file)
  int output = -1;        // what the child gets as standard output; -1: inherited, or the log file
  std::optional<std::vector<std::string>> environment = {};  // "NAME=value"; nullopt: ours
};

struct Child {
  pid_t pid = 0;
  Fd pidfd;  // readable when the process is gone
};

/// Starts a process with default signal dispositions and no blocked signals. A program that cannot be
/// executed is an error here, not an exit code later.
[[nodiscard]] Result<Child> spawn(const SpawnOptions& options);

/// True once the process is gone; takes its exit status when it is a child of ours.
[[nodiscard]] bool is_gone(const Child& child);
/// Waits until it is gone; false when the time is over first.
[[nodiscard]] bool wait_gone(const Child& child, std::chrono::milliseconds timeout);
/// Sends a signal by pidfd: it cannot hit a process that got the same number later.
void send_signal(const Child& child, int signal);
/// SIGTERM, then SIGKILL after `grace`; returns when it is gone (or after 2 s more: stuck in the kernel).
void stop_child(const Child& child, std::chrono::milliseconds grace);

/// A lock file: who holds it lives. The lock belongs to the open file, so a child that keeps the descriptor
/// keeps the lock, and it goes with the last of them, whatever killed them. Only its owner can open it: whoever can
/// read a file can lock it.
class LockFile {
 public:
  /// Takes the lock. kAlreadyExists, with the holder's PID in the text, when somebody else has it.
  [[nodiscard]] static Result<LockFile> take(const std::string& path);
  /// The process that the living holder named, pinned, or nullopt when nobody holds it. Waits a moment where nobody
  /// living is named: it may just be taken.
  ///   errors  kPermissionDenied: it is another user's; kFailedPrecondition: it is held, and the process that is named
  ///           there is gone, whoever has its number now
  [[nodiscard]] static Result<std::optional<Child>> holder(const std::string& path);
  /// Writes who holds it (after the fork: the child's PID).
  [[nodiscard]] Result<void> write_pid(pid_t pid);
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit LockFile(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

/// Stops who holds each of these locks; where it cannot be told who does, the others all the same.
///   errors  LockFile::holder()'s, the first one's
[[nodiscard]] Result<void> stop_holders(const std::vector<std::string>& locks, std::chrono::milliseconds grace);

/// A handle on a process that is not our child; kNotFound when it is gone.
[[nodiscard]] Result<Child> open_process(pid_t pid);

}  // namespace carve
