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
  /// Now, as the pod sees it, in millionths of the card, memory and compute added up: what policies rank by.
  std::int64_t left = 0;
  std::vector<std::string> gives;  // to these parts; empty: not chosen
  friend bool operator==(const RankedCard&, const RankedCard&) = default;
};

/// A node that serves a pod, with the terms of its score.
struct RankedNode {
  std::string node;
  std::int64_t score = 0;  // as in FittingNode
  std::string policies;    // what ranks here, and by whose word
  Leftover left;           // after the pod
  std::vector<RankedCard> cards;
  friend bool operator==(const RankedNode&, const RankedNode&) = default;
};

/// The best `most` of the nodes that fit, the engine's choice first, with the terms that made them so.
///   in      fitting: what fit() of the same arguments found, the priority among them
///   cost    place_pod() per node of the answer
[[nodiscard]] std::vector<RankedNode> ranking(const ClusterState& cluster, const Owner& owner,
                                              const std::vector<PartRequest>& parts, std::vector<FittingNode> fitting,
                                              const PodPolicy& policy, std::string_view space, std::size_t most,
                                              std::int32_t priority = 0);

}  // namespace carve
