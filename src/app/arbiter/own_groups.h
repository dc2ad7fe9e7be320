#pragma once

#include <string>

#include <sys/types.h>

namespace carve::arbiter {

/// Who may join a slice that has a cgroup of its own (`carve run`: the slice begins and ends with it): only a process
/// in that cgroup or below it. A slice without one is a container's; there, whoever reaches the socket belongs to it,
/// and only its runtime's mount leads there.
class OwnGroups {
 public:
  /// `folder`: where the slices' cgroups are ("/sys/fs/cgroup/carve"); `path`: the same as /proc/<pid>/cgroup spells
  /// it ("/carve"); both empty: no slice here has one. `proc`: where /proc is.
  OwnGroups(std::string folder, std::string path, std::string proc = "/proc");

  /// A process that ends meanwhile may not.
  ///   cost  two reads of the kernel's tables, some 15 us; once per process that begins to use a card
  [[nodiscard]] bool may_join(const std::string& slice, pid_t pid) const;

 private:
  std::string folder_;
  std::string path_;
  std::string proc_;
};

}  // namespace carve::arbiter
