#pragma once

#include <functional>
#include <vector>

#include "app/control/cluster_model.h"
#include "codec/cluster/budget.h"
#include "core/cluster/room.h"

namespace carve::control {

/// Everybody who holds cards, and whether they may be asked to go: not static pods, nor those whom `spare` names. Who
/// is deleted, has ended, or went and may still hold, is going.
///   cost    all placed pods, times the budgets
[[nodiscard]] PreemptionCandidates preemption_candidates_of(const ClusterModel& model,
                                                            const std::vector<codec::Budget>& budgets,
                                                            const std::function<bool(const Owner&)>& spare = {});

/// All disruption budgets of the cluster, as the server has them now.
///   errors  KubeApi::list()'s, parse_budget()'s
[[nodiscard]] Result<std::vector<codec::Budget>> read_budgets(KubeApi& api);

}  // namespace carve::control
