#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/control/pod_entry.h"
#include "base/clock.h"
#include "codec/cluster/cluster_node.h"
#include "codec/node/gpu_object.h"
#include "core/cluster/assemble.h"

namespace carve::control {

/// How a write ended that a reservation was made for.
enum class Outcome : std::uint8_t {
  kFailed,   // it did not take effect and will not
  kBound,    // it took effect; the watch will show it
  kUnknown,  // it may still take effect
};

/// Room set aside for a pod on a node, before the API server knows.
struct Reservation {
  std::string node;
  Owner owner;
  std::string space;  // the pod's name
  std::string pod;
  std::vector<Slice> slices;
  std::uint64_t epoch = 0;
  Clock::Time since{};   // the last write's begin
  int asking = 0;        // writes on their way
  bool unknown = false;  // one of them ended so
  bool bound = false;
};

struct GpuEntry {
  codec::GpuObject object;
  std::size_t odd = 0;  // holders that could not be read
};

/// A pod that went before its GPU object named it.
struct Lingering {
  std::vector<Slice> slices;
  std::uint64_t epoch = 0;
  Clock::Time until{};
};

/// Room that is kept for a pod while others go for it.
struct KeptRoom {
  NominatedReservation hold;
  Clock::Time until{};
};

/// All that is known of one node, as the API server's objects and the binder say it.
struct NodeEntry {
  bool exists = false;
  codec::ClusterNode node;
  std::map<std::string, GpuEntry> gpus;                        // by object name
  std::map<std::string, std::shared_ptr<const PodEntry>> pods;  // bound here, by UID
  std::map<Owner, Reservation> reserved;
  std::map<Owner, Lingering> lingering;
  std::map<Owner, KeptRoom> kept;
  std::set<int> marked;             // cards that an operator took out, by their places in the driver's list
  std::vector<Conflict> conflicts;  // as last assembled
  std::optional<LinkMatrix> links;  // what the GPU objects say of them; nullopt: to be made anew

  // By what it is made next; both are of the time since `made`.
  std::shared_ptr<const NodeState> made;  // as last assembled, with all that is booked; nullptr: something did not fit
  std::set<Owner> moved;                  // whose bookings may be others now
  bool anew = true;                       // more than bookings may be

  /// An object of one of its cards is so from now on; nullopt: gone. Says in `moved` or `anew` what it changes.
  void put_gpu(const std::string& name, std::optional<GpuEntry> gpu);
  [[nodiscard]] bool empty() const {
    return !exists && gpus.empty() && pods.empty() && reserved.empty() && kept.empty() && marked.empty();
  }
  /// Some card's object says that this owner holds of it.
  [[nodiscard]] bool named(const Owner& owner) const;
};

/// Why nobody is sent to a node whose agent is about to end: what is bound there before the next one serves, the
/// kubelet would refuse for good.
inline constexpr const char* kAgentIsReplaced =
    "the node's agent is being replaced (condition GPUAgentLeaving); pods wait until the next one serves";

/// By dialect, why nobody who asks in it is sent there: another device plugin serves one of its names, and the kubelet
/// would give such a pod that plugin's devices too.
[[nodiscard]] std::map<std::string, std::string> closed_to(const codec::ClusterNode& node);

/// What assemble() is to make of it: every card, and every booking that anybody speaks of.
[[nodiscard]] NodeParts parts_of(NodeEntry& entry);

/// As Assembled, with the room that is kept.
struct Made {
  std::shared_ptr<const NodeState> state;
  std::vector<Conflict> conflicts;
};
/// What assemble(parts_of(entry)) gives; where bookings are all that changed since `made`, by those alone.
///   cost    a copy of the node's state and the slices of those who moved; else assemble()'s
[[nodiscard]] Made made_of(NodeEntry& entry);

/// Conflicts that no card has: records that are none.
[[nodiscard]] std::vector<Conflict> odd_records(const NodeEntry& entry);

}  // namespace carve::control
