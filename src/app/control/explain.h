#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/dialects/dialect.h"
#include "codec/views/explanation.h"
#include "core/cluster/cluster.h"

namespace carve::control {

/// Why a pod waits, per reason and with numbers, and what would have to change; of a placed one what it holds, and how
/// the policy sees the nodes without it. The engine's own words on this state of the cluster: nothing is remembered.
///   cost    fit(), of a pod that fits nowhere 25 times
[[nodiscard]] codec::Explanation explain(const codec::ClusterPod& pod, const codec::DialectSettings& settings,
                                         const ClusterState& cluster, const PlacementRules& rules);

}  // namespace carve::control
