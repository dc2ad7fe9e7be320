#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// One cgroup (v2) per slice that `carve run` created, named by the slice's ID. It is empty exactly when no process of
/// the slice lives, regardless of what crashed. Calls never block on the processes inside.
class Cgroups {
 public:
  virtual ~Cgroups() = default;
  ///   errors  kUnavailable: no cgroup2 mount; kAlreadyExists
  virtual Result<void> create(const std::string& id) = 0;
  /// Moves a process into the cgroup. kNotFound when either is gone.
  virtual Result<void> join(const std::string& id, std::int32_t pid) = 0;
  /// Moves a process that was joined by mistake to its parent's cgroup. Success when it is not inside.
  virtual Result<void> expel(const std::string& id, std::int32_t pid) = 0;
  /// True while a process lives inside; kNotFound when the cgroup does not exist.
  virtual Result<bool> populated(const std::string& id) = 0;
  /// True when any process has run inside, including one that has ended; kNotFound when the cgroup does not exist.
  virtual Result<bool> has_run(const std::string& id) = 0;
  virtual Result<std::vector<std::int32_t>> pids(const std::string& id) = 0;
  virtual Result<void> freeze(const std::string& id, bool frozen) = 0;
  /// Sends SIGKILL to all processes inside, forks included.
  virtual Result<void> kill(const std::string& id) = 0;
  /// Removes an empty cgroup. Success when it does not exist; kFailedPrecondition while populated.
  virtual Result<void> remove(const std::string& id) = 0;
  /// The IDs of all existing cgroups.
  virtual Result<std::vector<std::string>> list() = 0;
  /// Waits until a cgroup may have become empty, the timeout ends, or wake() is called.
  virtual void wait_change(std::chrono::milliseconds timeout) = 0;
  virtual void wake() = 0;
  /// The slice that has the process in its cgroup; empty when there is none.
  [[nodiscard]] virtual std::string slice_of(std::int32_t pid) const = 0;
};

}  // namespace carve
