#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/control/state/pod_entry.h"
#include "base/clock.h"
#include "codec/cluster/cluster_node.h"
#include "codec/node/gpu_object.h"
#include "core/cluster/assemble.h"

namespace carve::control {

/// The outcome of the write for which room was reserved.
enum class Outcome : std::uint8_t {
  kFailed,   // the write did not take effect and never will
  kBound,    // the write took effect; the watch will show it
  kUnknown,  // the write may still take effect
};

/// Room set aside for a pod on a node, before the API server has the decision.
struct Reservation {
  std::string node;
  Owner owner;
  std::string namespace_name;  // the pod's name
  std::string pod;
  std::vector<Slice> slices;
  std::uint64_t epoch = 0;
  Clock::Time since{};  // when the last write began
  int writes_in_flight = 0;
  bool outcome_unknown = false;  // a write ended with Outcome::kUnknown
  bool bound = false;            // a write ended with Outcome::kBound
};

struct GpuEntry {
  codec::GpuObject object;
  std::size_t unreadable_holders = 0;  // holders that could not be parsed
};

/// The slices of a pod that was deleted before its GPU object named it.
struct Lingering {
  std::vector<Slice> slices;
  std::uint64_t epoch = 0;
  Clock::Time until{};
};

/// Room that is kept for a pod while its victims end.
struct KeptRoom {
  NominatedReservation reservation;
  Clock::Time until{};
};

/// Everything known about one node, from the API server's objects and from the binder.
struct NodeEntry {
  bool exists = false;
  codec::ClusterNode node;
  std::map<std::string, GpuEntry> gpus;                        // by object name
  std::map<std::string, std::shared_ptr<const PodEntry>> pods;  // bound here, by UID
  std::map<Owner, Reservation> reserved;
  std::map<Owner, Lingering> lingering;
  std::map<Owner, KeptRoom> kept;
  std::set<int> marked;             // cards that an operator closed, by their places in the driver's list
  std::vector<Conflict> conflicts;  // of the last assembly
  std::optional<LinkMatrix> links;  // of the cards, from the GPU objects; nullopt: must be rebuilt

  // What the next assembly starts from. `changed_owners` and `rebuild` collect changes since `assembled`.
  std::shared_ptr<const NodeState> assembled;  // the last assembly, with all bookings; nullptr: a booking did not fit
  std::set<Owner> changed_owners;              // owners with bookings that may have changed
  bool rebuild = true;                         // more than bookings may have changed

  /// Stores the GPU object of one card; nullopt: the object is deleted. Records the change in `changed_owners` or
  /// `rebuild`.
  void put_gpu(const std::string& name, std::optional<GpuEntry> gpu);
  [[nodiscard]] bool empty() const {
    return !exists && gpus.empty() && pods.empty() && reserved.empty() && kept.empty() && marked.empty();
  }
  /// The GPU object of at least one card names this owner.
  [[nodiscard]] bool named(const Owner& owner) const;
};

/// Why no pod is bound to a node while its agent is about to end: the kubelet would permanently reject any pod that is
/// bound there before the next agent serves.
inline constexpr const char* kAgentIsReplaced =
    "the node's agent is being replaced (condition GPUAgentLeaving); pods wait until the next agent serves";

/// By dialect, why no pod that requests in that dialect is bound to the node: another device plugin serves one of the
/// dialect's resource names, and the kubelet would give the pod that plugin's devices as well; or the kubelet still has
/// 0 of the name, from an earlier mode of the cards, and would reject the pod.
[[nodiscard]] std::map<std::string, std::string> closed_to(const NodeEntry& entry);

/// The input for assemble(): every card, and every booking from all sources.
[[nodiscard]] NodeParts parts_of(NodeEntry& entry);

/// The same as Assembled, with the nominated reservations.
struct AssembledNode {
  std::shared_ptr<const NodeState> state;
  std::vector<Conflict> conflicts;
};
/// The result of assemble(parts_of(entry)). If only bookings changed since entry.assembled, computes it from those
/// alone.
///   cost    a copy of the node's state and the slices of entry.changed_owners; else assemble()'s
[[nodiscard]] AssembledNode assemble_node(NodeEntry& entry);

/// Conflicts that belong to no card: records that are invalid.
[[nodiscard]] std::vector<Conflict> invalid_records(const NodeEntry& entry);

}  // namespace carve::control
