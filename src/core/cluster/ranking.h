#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/ruled_fit.h"

namespace carve {

/// A card in the ranking of its node.
struct RankedCard {
  CardId card;
  /// What is free now, as the pod sees it, in millionths of the card, memory plus compute. Policies rank by this value.
  std::int64_t left = 0;
  std::vector<std::string> gives;  // the parts that get a slice of it; empty: the card is not chosen
  bool mixed = false;              // it has slices of the opposite priority class
  friend bool operator==(const RankedCard&, const RankedCard&) = default;
};

/// A node that fits a pod, with the terms of its score.
struct RankedNode {
  std::string node;
  std::int64_t score = 0;  // as in FittingNode
  std::string policies;    // the policies that rank here, and the scope that sets each of them
  Leftover left;           // after the pod
  std::vector<RankedCard> cards;
  friend bool operator==(const RankedNode&, const RankedNode&) = default;
};

/// The best `most` of the fitting nodes, the chosen one first, with the terms of their scores.
///   in      fitting: the result of fit() with the same arguments, including the priority
///   cost    place_pod() per returned node
[[nodiscard]] std::vector<RankedNode> ranking(const ClusterState& cluster, const Owner& owner,
                                              const std::vector<PartRequest>& parts, std::vector<FittingNode> fitting,
                                              const PodPolicy& policy, std::string_view namespace_name,
                                              std::size_t most, std::int32_t priority = 0);

}  // namespace carve
