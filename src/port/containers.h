#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// A living process of a pod, by the kernel's word: no tenant can leave its pod's cgroup, whatever
/// it does to its mounts, its root or its namespaces.
struct PodProcess {
  std::int32_t pid = 0;
  std::string pod;  // UID as the kubelet names the cgroup: of a static pod not the API server's; see processes()
  std::string
      group;  // its container's cgroup, to be given to freeze(); empty: it cannot be frozen here
  friend bool operator==(const PodProcess&, const PodProcess&) = default;
};

/// The kubelet's containers, seen from the node. Not ours: nothing here makes or removes a cgroup.
/// Safe from any thread.
class Containers {
 public:
  virtual ~Containers() = default;
  /// Every living process of every pod; one in uninterruptible wait lives, a zombie does not. One
  /// look at each process of the machine, some 10 us a piece. A process whose cgroup alone cannot be
  /// read has an empty `pod`: it may be anybody's, and what is mounted for it tells whose.
  ///   errors  kUnavailable: the machine's processes cannot be seen
  [[nodiscard]] virtual Result<std::vector<PodProcess>> processes() const = 0;
  /// The same of one process; none when it is gone, in no pod, or in which cannot be told.
  [[nodiscard]] virtual std::optional<PodProcess> process(std::int32_t pid) const = 0;
  /// Stops all of the container, or lets it go on. Returns at once; a frozen process still holds
  /// what it holds.
  ///   errors  kNotFound: the container is gone
  virtual Result<void> freeze(const std::string& group, bool frozen) = 0;
};

}  // namespace carve
