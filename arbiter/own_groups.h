#pragma once

#include <string>

#include <sys/types.h>

namespace carve::arbiter {

/// Decides which processes may join a slice. A slice of `carve run` has its own cgroup and begins and ends with it:
/// only a process in that cgroup or below it may join. A slice without a cgroup belongs to a container. Every process
/// that reaches the socket of such a slice may join, because only the mount by the container's runtime leads to the
/// socket.
class OwnGroups {
 public:
  /// `folder`: the parent of the slices' cgroups ("/sys/fs/cgroup/carve"). `path`: the same folder as
  /// /proc/<pid>/cgroup spells it ("/carve"). Both empty: no slice here has a cgroup. `proc`: the mount point of /proc.
  OwnGroups(std::string folder, std::string path, std::string proc = "/proc");

  /// False also for a process that ends during the call.
  ///   cost  two reads of the kernel's tables, about 15 us; once per process that begins to use a card
  [[nodiscard]] bool may_join(const std::string& slice, pid_t pid) const;

 private:
  std::string folder_;
  std::string path_;
  std::string proc_;
};

}  // namespace carve::arbiter
