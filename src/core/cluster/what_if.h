#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"

namespace carve {

/// What a pod that fits nowhere could request instead. Each value is a change by itself: the rest of the request stays
/// the same. nullopt: that change alone does not help, or the pod does not request that quantity.
struct SmallerAsk {
  std::optional<Bytes> memory;           // at most this per card, in every container; whole MiB
  std::optional<std::uint32_t> compute;  // at most this, in hundredths of a card
  std::optional<std::uint32_t> cards;    // at most this number, in every container
  friend bool operator==(const SmallerAsk&, const SmallerAsk&) = default;
};

/// The largest smaller requests that fit on one of `names` now. Pure.
///   cost    about 25 times fit()
[[nodiscard]] SmallerAsk what_would_fit(const ClusterState& cluster, const Owner& owner,
                                        const std::vector<PartRequest>& parts, const std::vector<std::string>& names,
                                        const PolicyRow& policy);

}  // namespace carve
