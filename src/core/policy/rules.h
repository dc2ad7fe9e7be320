#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy/node_policy.h"
#include "core/policy/quota.h"

namespace carve {

/// What one scope sets for placement: the policy that ranks nodes, and the policy that ranks the cards of a node.
/// nullptr: the scope does not set that policy.
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

/// Placement as data. For each of the two rankings the most specific scope that sets it applies: the pod, its
/// namespace, the node's pool, the cluster, and last the first row of either table.
struct PlacementRules {
  PolicyChoice cluster;
  std::vector<PoolRule> pools;  // a node belongs to the first pool that selects it
  std::map<std::string, PolicyChoice, std::less<>> namespaces;
  Quotas quotas = {};
  friend bool operator==(const PlacementRules&, const PlacementRules&) = default;
};

enum class PolicyScope : std::uint8_t { kBuiltIn, kCluster, kPool, kNamespace, kPod };

/// The policies that apply to one pod on one node, and the scope that sets each of them.
struct Policies {
  const NodePolicyRow* node = nullptr;  // never nullptr when returned by PodPolicy
  const PolicyRow* card = nullptr;
  PolicyScope node_by = PolicyScope::kBuiltIn;
  PolicyScope card_by = PolicyScope::kBuiltIn;
  const PoolRule* pool = nullptr;  // the node's pool, where it was looked up
  friend bool operator==(const Policies&, const Policies&) = default;
};

/// The policies that apply to one pod, node by node. Refers to the rules from which it was made.
class PodPolicy {
 public:
  /// One policy for everything: this row for cards, and for nodes the row of the same name, or the first row.
  explicit PodPolicy(const PolicyRow& row);
  /// `pod`: the pod's own preference.
  PodPolicy(const PlacementRules& rules, std::string_view namespace_name, const PolicyChoice& pod);

  ///   cost    nothing where the pod or its namespace set both; else a look-up per label of each pool up to the node's
  [[nodiscard]] Policies on(const NodeLabels& labels) const;
  /// True when both give the same policies for every node; rules are compared by identity.
  friend bool operator==(const PodPolicy&, const PodPolicy&) = default;

 private:
  const PlacementRules* rules_ = nullptr;  // nullptr: fixed_ has both policies
  Policies fixed_;                         // what the pod and its namespace set; nullptr: not set by them
};

/// Readable text: "nodes by spread (pool a), cards by binpack (cluster)".
[[nodiscard]] std::string to_human(const Policies& policies, std::string_view namespace_name);

}  // namespace carve
