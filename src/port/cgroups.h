#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// One cgroup (v2) per slice that was made by `carve run`, named by the slice's id. It is empty exactly when
/// no process of the slice lives, whatever died. Calls never block on the processes inside.
class Cgroups {
 public:
  virtual ~Cgroups() = default;
  ///   errors  kUnavailable: no cgroup2 mount; kAlreadyExists
  virtual Result<void> create(const std::string& id) = 0;
  /// Moves one process in. kNotFound when either is gone.
  virtual Result<void> join(const std::string& id, std::int32_t pid) = 0;
  /// Moves one process that got in by mistake to where its parent is. Success when it is not inside.
  virtual Result<void> expel(const std::string& id, std::int32_t pid) = 0;
  /// True while a process lives inside; kNotFound when there is no such cgroup.
  virtual Result<bool> populated(const std::string& id) = 0;
  /// True when a process has ever run inside, also one that has ended since; kNotFound when there is no such cgroup.
  virtual Result<bool> has_run(const std::string& id) = 0;
  virtual Result<std::vector<std::int32_t>> pids(const std::string& id) = 0;
  virtual Result<void> freeze(const std::string& id, bool frozen) = 0;
  /// SIGKILL to all inside, forks included.
  virtual Result<void> kill(const std::string& id) = 0;
  /// Removes an empty one. Success when there is none; kFailedPrecondition while populated.
  virtual Result<void> remove(const std::string& id) = 0;
  /// The ids of all that exist.
  virtual Result<std::vector<std::string>> list() = 0;
  /// Waits until one of them may have become empty, or the time is over, or wake() is called.
  virtual void wait_change(std::chrono::milliseconds timeout) = 0;
  virtual void wake() = 0;
  /// The slice whose cgroup the process is in; empty when in none.
  [[nodiscard]] virtual std::string slice_of(std::int32_t pid) const = 0;
};

}  // namespace carve
