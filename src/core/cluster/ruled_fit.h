#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/cluster/what_if.h"
#include "core/policy/rules.h"
#include "core/policy/unschedulable_reason.h"

// fit() and what_would_fit() where each node may have its own policies (rules.h). cluster.h has the versions for one
// policy.
namespace carve {

/// The answer of one node about a pod.
struct NodeAnswer {
  bool fits = false;
  bool final = false;  // it will not fit, regardless of which pods leave
  std::int64_t score = 0;
  std::string why;  // empty: it fits
  UnschedulableReason class_of_why = UnschedulableReason::kNoCard;
};
/// What fit() evaluates for each node with cards, except for capacity that is set aside. A closed node answers why it
/// is closed, regardless of its free capacity.
///   cost    place_pod()
[[nodiscard]] NodeAnswer answer_of_node(const NodeState& state, const Owner& owner,
                                        const std::vector<PartRequest>& parts, const PodPolicy& policy,
                                        std::int32_t priority = 0);
/// True: capacity is set aside on the node for the owner, and the node is open to it.
[[nodiscard]] bool is_reserved_for(const NodeState& state, const Owner& owner, const std::vector<PartRequest>& parts);
inline constexpr std::int64_t kReservedScore = kBestScore + 1;
inline constexpr std::string_view kNoCardThere = "no card managed by Carve";

/// As fit() of cluster.h, by the policies that apply to the pod on each node.
[[nodiscard]] Fit fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
                      const std::vector<std::string>& names, const PodPolicy& policy, std::int32_t priority = 0);
/// The same containers with the constraints that follow from how much they request (QuotaBook::within).
using WithinQuotas = std::function<std::vector<PartRequest>(std::vector<PartRequest> parts)>;
/// As what_would_fit() of what_if.h. Whether a request fits does not depend on the policy; which cards are tried for
/// several containers does. `within` is called for each smaller request; empty: there are no quotas.
[[nodiscard]] SmallerAsk what_would_fit(const ClusterState& cluster, const Owner& owner,
                                        const std::vector<PartRequest>& parts, const std::vector<std::string>& names,
                                        const PodPolicy& policy, std::int32_t priority = 0,
                                        const WithinQuotas& within = {});

}  // namespace carve
