#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/node_policy.h"

namespace carve {

/// What one scope says about placement: the policy that ranks nodes, and the one that ranks a node's cards. nullptr:
/// it says nothing about that.
struct PolicyChoice {
  const NodePolicyRow* node = nullptr;
  const PolicyRow* card = nullptr;
  friend bool operator==(const PolicyChoice&, const PolicyChoice&) = default;
};

using NodeLabels = std::map<std::string, std::string>;

/// The nodes that have all of these labels.
struct PoolRule {
  std::string name;
  NodeLabels labels;
  PolicyChoice choice;
  friend bool operator==(const PoolRule&, const PoolRule&) = default;
};

/// Placement as data. For each of the two rankings the most specific scope that says something counts: the pod, its
/// namespace, the node's pool, the cluster, the first row of either table.
struct PlacementRules {
  PolicyChoice cluster;
  std::vector<PoolRule> pools;  // a node is in the first that selects it
  std::map<std::string, PolicyChoice, std::less<>> spaces;
  friend bool operator==(const PlacementRules&, const PlacementRules&) = default;
};

enum class PolicyScope : std::uint8_t { kBuiltIn, kCluster, kPool, kNamespace, kPod };

/// What counts for one pod on one node, and whose word it is.
struct Policies {
  const NodePolicyRow* node = nullptr;  // never nullptr as PodPolicy gives them
  const PolicyRow* card = nullptr;
  PolicyScope node_by = PolicyScope::kBuiltIn;
  PolicyScope card_by = PolicyScope::kBuiltIn;
  const PoolRule* pool = nullptr;  // the node's, where it was asked for
  friend bool operator==(const Policies&, const Policies&) = default;
};

/// What counts for one pod, node by node. Points into the rules it was made of.
class PodPolicy {
 public:
  /// One policy for everything: cards by this row, nodes by that of the same name, else by the first.
  explicit PodPolicy(const PolicyRow& row);
  /// `pod`: its own preference.
  PodPolicy(const PlacementRules& rules, std::string_view space, const PolicyChoice& pod);

  ///   cost    nothing where pod or namespace say both; else a look-up per label of each pool up to the node's
  [[nodiscard]] Policies on(const NodeLabels& labels) const;
  /// They say the same of every node; rules are compared by identity.
  friend bool operator==(const PodPolicy&, const PodPolicy&) = default;

 private:
  const PlacementRules* rules_ = nullptr;  // nullptr: fixed_ says it all
  Policies fixed_;                         // as far as the pod and its namespace say; nullptr: they do not
};

/// For a person: "spread (pool a)", and for both rankings "nodes by spread (pool a), cards by binpack (cluster)".
[[nodiscard]] std::string to_human(const Policies& policies, std::string_view space);

}  // namespace carve
