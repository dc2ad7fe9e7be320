#pragma once

#include <memory>
#include <string>

#include "base/bell.h"
#include "base/fd.h"
#include "port/cgroups.h"

namespace carve::cgroup {

/// Cgroups in the kernel's unified hierarchy (v2), below one folder of Carve. Uses only cgroup.procs, cgroup.events,
/// cgroup.freeze and cgroup.kill and no controllers, so it also works on a host that uses v1. Safe from any thread.
class Cgroup2 final : public Cgroups {
 public:
  /// `root`: Carve's folder ("/sys/fs/cgroup/carve"); created if it is missing.
  ///   errors  kUnavailable: not below a cgroup2 mount
  static Result<std::unique_ptr<Cgroup2>> open(const std::string& root);
  /// Removes the root folder if it contains no slice's group. Call no other function afterwards.
  void remove_root() const;
  /// The mount point of cgroup2, from /proc/self/mountinfo; kUnavailable: it is not mounted.
  static Result<std::string> find_mount();
  /// The path of this folder as /proc/<pid>/cgroup shows it ("/carve"); the folder need not exist yet.
  ///   errors  kUnavailable: not below a cgroup2 mount
  static Result<std::string> spelled(const std::string& root);

  Result<void> create(const std::string& id) override;
  Result<void> join(const std::string& id, std::int32_t pid) override;
  Result<void> expel(const std::string& id, std::int32_t pid) override;
  Result<bool> populated(const std::string& id) override;
  Result<bool> has_run(const std::string& id) override;
  Result<std::vector<std::int32_t>> pids(const std::string& id) override;
  Result<void> freeze(const std::string& id, bool frozen) override;
  Result<void> kill(const std::string& id) override;
  Result<void> remove(const std::string& id) override;
  Result<std::vector<std::string>> list() override;
  void wait_change(std::chrono::milliseconds timeout) override;
  void wake() override;
  [[nodiscard]] std::string slice_of(std::int32_t pid) const override;

 private:
  Cgroup2(std::string root, std::string inside, Fd inotify, Bell bell);
  [[nodiscard]] std::string folder(const std::string& id) const { return root_ + "/" + id; }
  void watch(const std::string& id);

  std::string root_;    // path in the file system
  std::string inside_;  // the same folder as /proc/<pid>/cgroup shows it: "/carve"
  Fd inotify_;
  Bell bell_;
};

}  // namespace carve::cgroup
