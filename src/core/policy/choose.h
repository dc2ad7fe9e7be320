#pragma once

#include <cstdint>
#include <vector>

#include "core/topology/links.h"

namespace carve {

/// A card that fits, and how the policy likes it.
struct Candidate {
  const CardId* card;
  std::int64_t score;
};

/// Picks `count` (>= 1, <= candidates) distinct candidates, given sorted by UUID; returns their indexes in
/// rising order. `links_first`: the best connected set wins and the score decides between equals; else the
/// sum of the scores wins and the links decide. Ties go to the lower UUIDs.
///   cost  one card O(n); exact up to 16 candidates; above, the best of n greedy sets, O(n^2 × count)
[[nodiscard]] std::vector<std::size_t> choose_set(const std::vector<Candidate>& candidates,
                                                  std::size_t count, const LinkMatrix& links,
                                                  bool links_first);

}  // namespace carve
