#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster/cluster.h"

namespace carve {

/// What a pod that fits nowhere could ask for instead, each by itself, all else as it is. nullopt: that alone does not
/// help, or the pod does not ask for it.
struct SmallerAsk {
  std::optional<Bytes> memory;           // at most this per card, in every container; whole MiB
  std::optional<std::uint32_t> compute;  // at most this, in hundredths of a card
  std::optional<std::uint32_t> cards;    // at most this many, in every container
  friend bool operator==(const SmallerAsk&, const SmallerAsk&) = default;
};

/// The largest smaller requests that would fit on one of `names` now. Pure.
///   cost    about 25 times fit()
[[nodiscard]] SmallerAsk what_would_fit(const ClusterState& cluster, const Owner& owner,
                                        const std::vector<PartRequest>& parts, const std::vector<std::string>& names,
                                        const PolicyRow& policy);

}  // namespace carve
