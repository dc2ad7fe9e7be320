#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/policy/quota.h"

namespace carve {

/// A quota and how much of it is used.
struct QuotaUse {
  std::string namespace_name;
  Quota quota;
  CardParts used = 0;
};

/// The quotas of the cluster's namespaces, and what the owners of each namespace hold, kept up to date node by node.
/// Not thread-safe.
class QuotaBook {
 public:
  /// The namespace of an owner; empty: unknown, so that it counts for none.
  using NamespaceOf = std::function<std::string(const Owner&)>;

  /// Replaces the quotas. put() must follow for each node.
  void set(Quotas quotas);
  [[nodiscard]] const Quotas& quotas() const { return quotas_; }
  [[nodiscard]] bool any() const { return !quotas_.empty(); }

  /// The node has this state now; nullptr: it is removed.
  ///   cost    O(slices of the node); nothing without quotas
  void put(const std::string& node, const NodeState* state, const NamespaceOf& namespace_of);

  /// The models of which the namespace's quotas have too little left for these containers, each with the reason. What
  /// `owner` holds itself does not count: it holds it for the same containers.
  ///   cost    O(models × quotas of the namespace); nothing for a namespace without a quota
  [[nodiscard]] std::vector<BarredModel> barred(std::string_view namespace_name, const Owner& owner,
                                                const std::vector<PartRequest>& parts) const;

  /// The same containers, which accept no card of the models that barred() returns.
  [[nodiscard]] std::vector<PartRequest> within(std::string_view namespace_name, const Owner& owner,
                                                std::vector<PartRequest> parts) const;

  /// All quotas, by namespace, in the order in which they were set.
  [[nodiscard]] std::vector<QuotaUse> uses() const;

 private:
  /// What one owner holds of the cards of one model.
  struct Held {
    std::string namespace_name;
    Owner owner;
    std::string model;
    CardParts parts = 0;
  };
  struct OnNode {
    std::vector<Held> held;
    std::vector<Card> kinds;  // one card of each model and size
  };
  using Kind = std::pair<std::string, Bytes>;  // the model and the total memory

  void take_out(const OnNode& node);
  [[nodiscard]] CardParts used_of(const std::string& namespace_name, const Quota& quota) const;
  [[nodiscard]] CardParts own_of(const Owner& owner, const Quota& quota) const;

  Quotas quotas_;
  std::map<std::string, OnNode> nodes_;
  std::map<std::string, std::map<std::string, CardParts>, std::less<>> used_;  // by namespace, by model
  std::map<Owner, std::map<std::string, CardParts>> by_owner_;                 // by model; owners of used_
  std::map<Kind, std::pair<Card, std::size_t>> kinds_;                         // with the number of nodes that have it
};

/// The same containers, which accept no card of these models.
[[nodiscard]] std::vector<PartRequest> without(const std::vector<BarredModel>& barred, std::vector<PartRequest> parts);

}  // namespace carve
