#pragma once

#include <functional>
#include <vector>

#include "app/control/state/cluster_model.h"
#include "codec/cluster/budget.h"
#include "core/cluster/room.h"

namespace carve::control {

/// All pods that hold cards, except static pods and those for which `spare` returns true. A pod that is being deleted,
/// has ended, or is deleted and may still hold slices counts as going.
///   cost    all placed pods, times the budgets
[[nodiscard]] PreemptionCandidates preemption_candidates_of(const ClusterModel& model,
                                                            const std::vector<codec::Budget>& budgets,
                                                            const std::function<bool(const Owner&)>& spare = {});

/// All PodDisruptionBudgets of the cluster, read from the server now.
///   errors  KubeApi::list()'s, parse_budget()'s
[[nodiscard]] Result<std::vector<codec::Budget>> read_budgets(KubeApi& api);

}  // namespace carve::control
