#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/dialects/dialect.h"
#include "codec/views/explanation.h"
#include "core/cluster/cluster.h"

namespace carve::control {

/// For a waiting pod: why it waits, by reason and with numbers, and what would have to change. For a placed pod: what
/// it holds, and how the policy ranks the nodes without it. Computed by the engine from this state of the cluster
/// alone.
///   cost    fit(); 25 times for a pod that fits nowhere
[[nodiscard]] codec::Explanation explain(const codec::ClusterPod& pod, const PodRequests& requests,
                                         const ClusterModel& model, const PlacementRules& rules);

}  // namespace carve::control
