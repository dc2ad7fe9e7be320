#pragma once

#include <memory>
#include <string>

#include "base/bell.h"
#include "base/fd.h"
#include "port/cgroups.h"

namespace carve {

/// Cgroups on the kernel's unified hierarchy, below one folder of ours. Uses cgroup.procs, cgroup.events,
/// cgroup.freeze and cgroup.kill only, no controllers: it works beside a v1 host too. Safe from any thread.
class Cgroup2 final : public Cgroups {
 public:
  /// `root`: our folder ("/sys/fs/cgroup/carve"), made when missing.
  ///   errors  kUnavailable: not below a cgroup2 mount
  static Result<std::unique_ptr<Cgroup2>> open(const std::string& root);
  /// Takes the root away when no slice's group is in it; nothing else can be done with it then.
  void remove_root() const;
  /// Where cgroup2 is mounted, from /proc/self/mountinfo; kUnavailable when nowhere.
  static Result<std::string> find_mount();
  /// How /proc/<pid>/cgroup spells this folder ("/carve"), whether it is there yet or not.
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

  std::string root_;    // host path
  std::string inside_;  // the same as /proc/<pid>/cgroup spells it: "/carve"
  Fd inotify_;
  Bell bell_;
};

}  // namespace carve
