#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "port/containers.h"

namespace carve {

/// Where a cgroup path lies in the kubelet's tree, for both of its cgroup drivers:
///   "/kubepods/burstable/pod<UID>/<container>"                                          cgroupfs
///   "/kubepods.slice/kubepods-pod<UID with _>.slice/cri-containerd-<container>.scope"   systemd
struct PodPath {
  std::string pod;  // UID, as the API server writes it; empty: in no pod
  std::string
      container;  // the path down to the container; empty: the process is in the pod's own cgroup
};
/// The outermost pod counts: what a tenant makes is below its own. Pure.
[[nodiscard]] PodPath pod_path(std::string_view cgroup);

/// By /proc/<pid>/cgroup; freezes by whichever hierarchy can (cgroup.freeze of v2, freezer.state of
/// v1).
class PodGroups final : public Containers {
 public:
  /// `proc`: where the host's processes are; the freezers' mounts are those of this process's
  /// mountinfo.
  explicit PodGroups(std::string proc = "/proc");

  [[nodiscard]] Result<std::vector<PodProcess>> processes() const override;
  [[nodiscard]] std::optional<PodProcess> process(std::int32_t pid) const override;
  Result<void> freeze(const std::string& group, bool frozen) override;

 private:
  [[nodiscard]] std::optional<PodProcess> parse(std::int32_t pid, std::string_view text) const;
  [[nodiscard]] Result<std::optional<PodProcess>> look_at(std::int32_t pid) const;  // an error: nobody can be told now

  std::string proc_;
  std::string unified_;  // mount point of cgroup2; empty: none
  std::string freezer_;  // of v1's freezer
};

}  // namespace carve
