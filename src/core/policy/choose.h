#pragma once

#include <cstdint>
#include <vector>

#include "core/topology/links.h"

namespace carve {

/// A card that fits, and its score by the policy.
struct Candidate {
  const CardId* card;
  std::int64_t score;
};

/// Picks `count` (>= 1, <= the number of candidates) distinct candidates. The candidates must be sorted by UUID.
/// Returns their indexes in rising order. `links_first`: the best connected set wins, and the score decides between
/// equals. Otherwise the highest sum of scores wins, and the links decide between equals. Ties go to the lower UUIDs.
///   cost    one card: O(n); several: exact up to 16 candidates; above that, the best of n greedy sets, O(n^2 × count)
[[nodiscard]] std::vector<std::size_t> choose_set(const std::vector<Candidate>& candidates,
                                                  std::size_t count, const LinkMatrix& links,
                                                  bool links_first);

}  // namespace carve
