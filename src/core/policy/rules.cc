#include "core/policy/rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace carve {
namespace {

/// Fills in the policies that no more specific scope has set.
void fill_unset(const PolicyChoice& choice, PolicyScope scope, Policies* policies) {
  if (policies->node == nullptr && choice.node != nullptr) {
    policies->node = choice.node;
    policies->node_by = scope;
  }
  if (policies->card == nullptr && choice.card != nullptr) {
    policies->card = choice.card;
    policies->card_by = scope;
  }
}

bool selects(const PoolRule& pool, const NodeLabels& labels) {
  return std::all_of(pool.labels.begin(), pool.labels.end(), [&](const auto& wanted) {
    const auto found = labels.find(wanted.first);
    return found != labels.end() && found->second == wanted.second;
  });
}

std::string words_of(PolicyScope scope, const Policies& policies, std::string_view namespace_name) {
  switch (scope) {
    case PolicyScope::kPod:
      return "the pod's own";
    case PolicyScope::kNamespace:
      return fmt::format("namespace {}", namespace_name);
    case PolicyScope::kPool:
      return "pool " + (policies.pool == nullptr ? std::string() : policies.pool->name);
    case PolicyScope::kCluster:
      return "cluster";
    case PolicyScope::kBuiltIn:
      break;
  }
  return "built in";
}

}  // namespace

PodPolicy::PodPolicy(const PolicyRow& row) : fixed_{node_policy_named(row.name), &row} {
  if (fixed_.node == nullptr) fixed_.node = &kNodePolicies[0];
}

PodPolicy::PodPolicy(const PlacementRules& rules, std::string_view namespace_name, const PolicyChoice& pod)
    : rules_(&rules) {
  fill_unset(pod, PolicyScope::kPod, &fixed_);
  const auto of_namespace = rules.namespaces.find(namespace_name);
  if (of_namespace != rules.namespaces.end()) fill_unset(of_namespace->second, PolicyScope::kNamespace, &fixed_);
}

Policies PodPolicy::on(const NodeLabels& labels) const {
  Policies policies = fixed_;
  if (rules_ == nullptr || (policies.node != nullptr && policies.card != nullptr)) return policies;
  const auto pool = std::find_if(rules_->pools.begin(), rules_->pools.end(),
                                 [&](const PoolRule& one) { return selects(one, labels); });
  if (pool != rules_->pools.end()) {
    policies.pool = &*pool;
    fill_unset(pool->choice, PolicyScope::kPool, &policies);
  }
  fill_unset(rules_->cluster, PolicyScope::kCluster, &policies);
  fill_unset({&kNodePolicies[0], &kPolicies[0]}, PolicyScope::kBuiltIn, &policies);
  return policies;
}

std::string to_human(const Policies& policies, std::string_view namespace_name) {
  return fmt::format("nodes by {} ({}), cards by {} ({})", policies.node->name,
                     words_of(policies.node_by, policies, namespace_name), policies.card->name,
                     words_of(policies.card_by, policies, namespace_name));
}

}  // namespace carve
