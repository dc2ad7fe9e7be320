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

/// Whether there is room for a waiting pod.
enum class Room : std::uint8_t {
  kThere,      // the pod fits on a node now
  kComing,     // the pod fits on a node after the pods that already terminate are gone, or after the node opens again
  kForOthers,  // the pod would fit if pods of lower priority were evicted
  kNone,       // the pod would not fit even then
};

struct FoundRoom {
  Room room = Room::kNone;
  std::string node;
  VictimPlan plan;  // kForOthers: the victims, and what the pod gets without them
};

/// The owners with slices that may be evicted, and those that already terminate.
struct PreemptionCandidates {
  std::map<std::string, std::vector<Holder>, std::less<>> holders;  // by node
  std::set<Owner> going;                                            // for any reason; none of them is evicted again
  std::vector<std::int64_t> allowed;                                // evictions that each budget still allows
};

/// Where there is room for a pod of that priority among `names`, or else on which node its victims are the cheapest;
/// the lower name between equals. A closed node gets no victims. For a node that is closed to the pod's dialect only,
/// the pod does not wait either. Capacity that is reserved for another pod counts as taken (nominated_reservation.h).
/// Pure.
///   cost    place_pod() per node; choose_victims() per node until it has found victims on kMostNodesToClear nodes
[[nodiscard]] FoundRoom find_room(const ClusterState& cluster, const Owner& owner,
                                  const std::vector<PartRequest>& parts, std::int32_t priority,
                                  const std::vector<std::string>& names,
                                  const std::function<const PolicyRow&(const std::string& node)>& policy,
                                  const PreemptionCandidates& candidates);
/// As many nodes as a dry run of kube-scheduler examines in a cluster of 1,000 nodes.
inline constexpr std::size_t kMostNodesToClear = 100;

}  // namespace carve
