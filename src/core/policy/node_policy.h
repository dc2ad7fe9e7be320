#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/policy/policy.h"

namespace carve {

/// What would be left on a node and on the cards that it would give. Each value is a mean over cards in millionths of a
/// card, memory plus compute: 0 (full) to kAllLeft. Policies rank nodes by it.
struct Leftover {
  std::int64_t cards = 0;    // of the cards that it would give
  std::int64_t node = 0;     // of all healthy and open cards
  std::uint32_t owners = 0;  // on the cards that it would give
  bool mixed = false;        // one of these has the opposite priority class (has_opposite_class)
  friend bool operator==(const Leftover&, const Leftover&) = default;
};
inline constexpr std::int64_t kAllLeft = 2'000'000;

/// What would be left on the card, in the same measure.
[[nodiscard]] std::int64_t left_after(const CardState& card, const Offer& offer);
/// The leftover of a node on which place_pod() chose these slices.
[[nodiscard]] Leftover leftover_of(const Ledger& ledger, const std::vector<Slice>& slices);

/// How nodes are ranked; PolicyRow ranks the cards of one node. A row is a name, a sentence, and the score of a node
/// that fits; higher is better. All rows score on one scale, 0 to kBestNode, because different rows may rank the nodes
/// of different pools.
struct NodePolicyRow {
  std::string_view name;
  std::string_view summary;
  std::int64_t (*score)(const Leftover& leftover);
};
inline constexpr std::int64_t kBestNode = (kAllLeft + 1) * (kAllLeft + 1) * kOwnersAtMost;

/// The node that gives the fullest cards; between equals the fullest node, so that whole nodes stay free.
[[nodiscard]] std::int64_t score_node_binpack(const Leftover& leftover);
/// The emptiest node; between equals the node that gives the emptiest cards, then the node with the fewest neighbours.
[[nodiscard]] std::int64_t score_node_spread(const Leftover& leftover);

/// All rows; the first one is the default.
inline constexpr std::array<NodePolicyRow, 2> kNodePolicies = {{
    {"binpack", "the node that gives the fullest cards; keeps whole nodes free", score_node_binpack},
    {"spread", "the emptiest node", score_node_spread},
}};

/// The score of a node by that row. A node that gives cards without the opposite priority class is better than every
/// other one, whatever the row.
[[nodiscard]] std::int64_t score_of(const NodePolicyRow& row, const Leftover& leftover);
inline constexpr std::int64_t kBestScore = 2 * kBestNode + 1;
// `explain -o json` prints scores. Most readers of JSON (JavaScript, Go, jq) keep a number as a double.
static_assert(kBestScore < std::int64_t{1} << 53);

/// The row of that name; nullptr: there is none.
[[nodiscard]] const NodePolicyRow* node_policy_named(std::string_view name);

}  // namespace carve
