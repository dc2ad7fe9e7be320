#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "app/agent/agent_world.h"
#include "app/agent/arbiter_pages.h"
#include "app/agent/slice_store.h"
#include "app/agent/watchdog.h"

namespace carve::agent {

/// Which slices a process belongs to, and which processes a slice has. Has no state of its own. Safe from any thread.
class ProcessSlices {
 public:
  ProcessSlices(const AgentWorld& world, const SliceStore& store, ArbiterPages& pages)
      : world_(world), store_(store), pages_(pages) {}

  /// The slices of a process, by the most reliable source first: its cgroup (`carve run`), its hello, its mounts, its
  /// pod. The pod also comes from the kernel, and is the only source for a process that hides its mounts (chroot). A
  /// process cannot move itself to another pod by its own mounts.
  ///   by_hellos  false: hellos do not count
  [[nodiscard]] std::vector<std::string> slices_of(std::int32_t pid, bool by_hellos = true) const;
  /// Of the slices of one process, the slice that holds this card, otherwise the first: a card that none of them holds
  /// is foreign to the process. Empty: the process has no slice.
  [[nodiscard]] std::string slice_on(const std::vector<std::string>& ids, const CardId& card) const;
  [[nodiscard]] std::vector<Sighting> sightings_of(const std::vector<GpuUsage>& usage, bool by_hellos = true) const;
  /// True if the process that has this PID now is in the slice. Call it before a signal: the driver's list and the
  /// pages are seconds old, and the PID may belong to another process now.
  [[nodiscard]] bool is_still_of(const std::string& slice, std::int32_t pid) const;
  ///   errors  kUnavailable: containers cannot be seen here
  [[nodiscard]] Result<std::vector<PodProcess>> pod_processes() const;
  /// The processes that still hold these slices. The sources are:
  ///   - the kubelet's cgroups, which no tenant can leave;
  ///   - the mounts of containers, if the pod is not known to hold the slices (a claim that pods share) or if the
  ///     cgroup cannot be read;
  ///   - the pages, because the kernel identified each process that sent a hello;
  ///   - the driver.
  /// `part_only`: other containers of the same pods do not count.
  ///   errors  kUnavailable: no source can answer
  ///   cost    a call of the driver, and one of the arbiter (2 s while it is stopped) unless all are whole cards
  [[nodiscard]] Result<std::set<std::int32_t>> holders_of(const std::set<std::string>& ids,
                                                          const Result<std::vector<PodProcess>>& pods,
                                                          bool part_only) const;
  /// True if the mounts of the process show that it is in a container with one of these slices.
  [[nodiscard]] bool sees_any(std::int32_t pid, const std::set<std::string>& ids) const;

 private:
  const AgentWorld& world_;
  const SliceStore& store_;
  ArbiterPages& pages_;
};

}  // namespace carve::agent
