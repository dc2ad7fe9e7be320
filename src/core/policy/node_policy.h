#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/policy/policy.h"

namespace carve {

/// What a node and the cards that it would give have left afterwards, each as a mean over cards in millionths of a
/// card, memory and compute added up: 0 (full) to kAllLeft. What policies rank nodes by.
struct Leftover {
  std::int64_t cards = 0;    // of those that it would give
  std::int64_t node = 0;     // of all that are healthy and open
  std::uint32_t owners = 0;  // on those that it would give
  friend bool operator==(const Leftover&, const Leftover&) = default;
};
inline constexpr std::int64_t kAllLeft = 2'000'000;

/// What the card would have left, in that measure.
[[nodiscard]] std::int64_t left_after(const CardState& card, const Offer& offer);
/// Of a node on which place_pod() chose these slices.
[[nodiscard]] Leftover leftover_of(const Ledger& ledger, const std::vector<Slice>& slices);

/// How nodes are ranked, where PolicyRow ranks the cards of one: a name, a sentence, and a score of a node that fits;
/// the higher the better. Scores are on one scale for all rows, 0 to kBestNode, since nodes of different pools may be
/// ranked by different ones.
struct NodePolicyRow {
  std::string_view name;
  std::string_view summary;
  std::int64_t (*score)(const Leftover& leftover);
};
inline constexpr std::int64_t kBestNode = (kAllLeft + 1) * (kAllLeft + 1) * 4096;

/// The node that gives the fullest cards; the fullest node between equals, so that whole nodes stay whole.
[[nodiscard]] std::int64_t score_node_binpack(const Leftover& leftover);
/// The emptiest node; the one that gives the emptiest cards between equals, then that with the fewest neighbours.
[[nodiscard]] std::int64_t score_node_spread(const Leftover& leftover);

/// All there are; the first one is the default.
inline constexpr std::array<NodePolicyRow, 2> kNodePolicies = {{
    {"binpack", "the node that gives the fullest cards; whole nodes stay whole", score_node_binpack},
    {"spread", "the emptiest node", score_node_spread},
}};

/// The row of that name; nullptr: none.
[[nodiscard]] const NodePolicyRow* node_policy_named(std::string_view name);

}  // namespace carve
