#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "port/containers.h"

namespace carve::cgroup {

/// The position of a cgroup path in the kubelet's tree, for both of the kubelet's cgroup drivers:
///   "/kubepods/burstable/pod<UID>/<container>"                                          cgroupfs
///   "/kubepods.slice/kubepods-pod<UID with _>.slice/cri-containerd-<container>.scope"   systemd
struct PodPath {
  std::string pod;        // UID in the API server's format; empty: not in a pod
  std::string container;  // the path of the container's group; empty: the path is the pod's own group
};
/// Uses the outermost pod of the path, because groups that a tenant creates are below its own pod. Pure.
[[nodiscard]] PodPath pod_path(std::string_view cgroup);

/// Finds pods by /proc/<pid>/cgroup. Freezes with cgroup.freeze (v2) or freezer.state (v1), whichever exists.
class PodGroups final : public Containers {
 public:
  /// `proc`: the /proc of the host's processes. The mounts of the freezers are those in this process's mountinfo.
  explicit PodGroups(std::string proc = "/proc");

  [[nodiscard]] Result<std::vector<PodProcess>> processes() const override;
  [[nodiscard]] std::optional<PodProcess> process(std::int32_t pid) const override;
  Result<void> freeze(const std::string& group, bool frozen) override;

 private:
  [[nodiscard]] std::optional<PodProcess> parse(std::int32_t pid, std::string_view text) const;
  // An error: no process can be examined now.
  [[nodiscard]] Result<std::optional<PodProcess>> look_at(std::int32_t pid) const;

  std::string proc_;
  std::string unified_;  // mount point of cgroup2; empty: none
  std::string freezer_;  // mount point of v1's freezer; empty: none
};

}  // namespace carve::cgroup
