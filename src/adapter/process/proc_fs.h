#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/timed_calls.h"
#include "port/processes.h"

namespace carve::process {

/// Processes through /proc.
class ProcFs final : public Processes {
 public:
  [[nodiscard]] std::string command(std::int32_t pid) const override;
  [[nodiscard]] std::vector<std::string> slices_seen_by(std::int32_t pid) const override;
  [[nodiscard]] std::vector<std::int32_t> holders_of_card(int minor) const override;
  [[nodiscard]] DeviceUser device_user(std::int32_t pid) const override;
  [[nodiscard]] bool only_inherited(std::int32_t pid, std::int32_t from) const override;
  Result<bool> kill(std::int32_t pid, const std::function<bool()>& still) override;

 private:
  struct OpenFile;
  /// The open descriptors of the process and its executable; nullopt: they cannot be read now.
  struct Files;
  std::optional<Files> files_of(std::int32_t pid) const EXCLUDES(mutex_);

  mutable Mutex mutex_;
  mutable TimedCalls calls_ GUARDED_BY(mutex_){ThreadName("proc-files"), std::chrono::milliseconds(200)};
};

/// The value of a line of /proc/<pid>/status, such as "S (sleeping)" for "State"; empty if there is none. Not from
/// /proc/<pid>/stat: reading that waits for a process that is blocked in exec.
///   source  proc_pid_status(5); the kernel escapes the end of a line in the process's name
[[nodiscard]] std::string_view status_value(std::string_view status, std::string_view name);

/// True for the text of a /proc/<pid>/status of a process or thread that has ended.
[[nodiscard]] bool has_ended(std::string_view status);

/// The slices that a /proc/<pid>/mountinfo shows: folders below the slices' folder where the folder of that very
/// name is mounted. A plain folder, or another folder mounted under a slice's name, is not a slice.
///   source  proc(5): the fourth field is the mounted folder within its file system, the fifth is its mount point
[[nodiscard]] std::vector<std::string> slices_in_mounts(const std::string& mountinfo);

}  // namespace carve::process
