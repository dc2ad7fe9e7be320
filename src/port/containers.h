#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace carve {

/// A living process of a pod. The pod comes from the process's cgroup, which no tenant can leave, regardless of its
/// mounts, root or namespaces.
struct PodProcess {
  std::int32_t pid = 0;
  std::string pod;    // UID from the cgroup's name; the UID of a static pod differs from that at the API server
  std::string group;  // its container's cgroup, for freeze(); empty: it cannot be frozen here
  friend bool operator==(const PodProcess&, const PodProcess&) = default;
};

/// The kubelet's containers, as the node sees them. Carve does not own them: nothing here creates or removes a cgroup.
/// Safe from any thread.
class Containers {
 public:
  virtual ~Containers() = default;
  /// Every living process of every pod. A process in uninterruptible sleep counts as living, a zombie does not. Reads
  /// each process of the machine once, about 10 us each. If only the cgroup of a process cannot be read, its `pod` is
  /// empty: it may belong to any pod, and the slices that are mounted for it identify the pod.
  ///   errors  kUnavailable: the machine's processes cannot be listed
  [[nodiscard]] virtual Result<std::vector<PodProcess>> processes() const = 0;
  /// The same for one process; nullopt when it is gone, belongs to no pod, or its pod cannot be determined.
  [[nodiscard]] virtual std::optional<PodProcess> process(std::int32_t pid) const = 0;
  /// Freezes or thaws all processes of the container. Returns immediately; a frozen process keeps its memory.
  ///   errors  kNotFound: the container is gone
  virtual Result<void> freeze(const std::string& group, bool frozen) = 0;
};

}  // namespace carve
