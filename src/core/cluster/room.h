#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/policy/victims.h"

namespace carve {

/// Whether a pod that waits finds room.
enum class Room : std::uint8_t {
  kThere,      // on some node it fits as it is
  kComing,     // on some node it fits once those have gone who are going already, or once the node is open again
  kForOthers,  // it would, if some of lower priority went
  kNone,       // not even then
};

struct FoundRoom {
  Room room = Room::kNone;
  std::string node;
  VictimPlan plan;  // kForOthers: who would have to go, and what the pod gets then
};

/// Everybody who holds somewhere and may be asked to go, or is going.
struct PreemptionCandidates {
  std::map<std::string, std::vector<Holder>, std::less<>> holders;  // by node
  std::set<Owner> going;                                            // for whatever reason; nothing is asked of them
  std::vector<std::int64_t> allowed;                                // of each budget
};

/// Where a pod of that priority finds room among `names`, and on which node the cheapest others would have to go for
/// it; the lower name between equals. On a node that is closed nobody goes for it, and on one that is closed to its
/// dialect alone it does not wait either. Room that is held for others is
/// taken (hold.h). Pure.
///   cost    place_pod() per node; choose_victims() on nodes where it helps, at most kMostNodesToClear of them
[[nodiscard]] FoundRoom find_room(const ClusterState& cluster, const Owner& owner,
                                  const std::vector<PartRequest>& parts, std::int32_t priority,
                                  const std::vector<std::string>& names,
                                  const std::function<const PolicyRow&(const std::string& node)>& policy,
                                  const PreemptionCandidates& standing);
/// As many as kube-scheduler's dry runs look at in a cluster of 1,000 nodes.
inline constexpr std::size_t kMostNodesToClear = 100;

}  // namespace carve
