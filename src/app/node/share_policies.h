#pragma once

#include <string>
#include <vector>

#include "codec/node/node_object.h"
#include "core/model/card.h"
#include "core/model/share_policy.h"

namespace carve::node {

/// The label of a Node by which an administrator sets how slices of class `node` share compute, on all of its cards. It
/// overrides qGPU's label, which applies only to qGPU's slices.
inline constexpr std::string_view kSharePolicy = "elasticgpu.io/share-policy";
/// An annotation for single cards: "0=fixed,GPU-5e3a…=burst", by the driver's index or the UUID.
inline constexpr std::string_view kCardSharePolicies = "elasticgpu.io/card-share-policies";

struct StatedSharePolicies {
  SharePolicies policies;
  std::string refused;  // every illegal value with what is legal; empty: none. It counts as not stated
};

/// The policies that the Node states, on top of `by_default`.
[[nodiscard]] StatedSharePolicies share_policies_on(const codec::NodeObject& node, const std::vector<Card>& cards,
                                                    const SharePolicies& by_default);

/// For logs: "cgpu fixed, qgpu equal; node burst; GPU-5e3a even-4".
[[nodiscard]] std::string describe(const SharePolicies& policies);

}  // namespace carve::node
