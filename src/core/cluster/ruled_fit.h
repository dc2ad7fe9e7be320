#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/cluster/what_if.h"
#include "core/policy/hindrance.h"
#include "core/policy/rules.h"

// fit() and what_would_fit() where each node may have policies of its own (rules.h); cluster.h has them for one policy.
namespace carve {

/// One node's word on a pod.
struct NodeWord {
  bool fits = false;
  bool final = false;  // it never will, whoever goes
  std::int64_t score = 0;
  std::string why;  // empty: it fits
  Hindrance class_of_why = Hindrance::kNoCard;
};
/// What fit() asks of each node that has cards of ours, reservations apart. A node that is closed says why, whatever
/// room it has.
///   cost    place_pod()
[[nodiscard]] NodeWord word_of_node(const NodeState& state, const Owner& owner, const std::vector<PartRequest>& parts,
                                    const PodPolicy& policy, std::int32_t priority = 0);
/// Room is set aside there for the owner, and it may go there.
[[nodiscard]] bool is_reserved_for(const NodeState& state, const Owner& owner, const std::vector<PartRequest>& parts);
inline constexpr std::int64_t kReservedScore = kBestNode + 1;
inline constexpr std::string_view kNoCardThere = "no card of ours on it";

/// As the one of cluster.h, by the policies that apply to the pod on each node.
[[nodiscard]] Fit fit(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
                      const std::vector<std::string>& names, const PodPolicy& policy, std::int32_t priority = 0);
/// As the one of what_if.h; what fits does not depend on the policy, which cards are tried for several containers does.
[[nodiscard]] SmallerAsk what_would_fit(const ClusterState& cluster, const Owner& owner,
                                        const std::vector<PartRequest>& parts, const std::vector<std::string>& names,
                                        const PodPolicy& policy, std::int32_t priority = 0);

}  // namespace carve
