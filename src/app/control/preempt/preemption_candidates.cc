#include "app/control/preempt/preemption_candidates.h"

#include <utility>

namespace carve::control {

PreemptionCandidates preemption_candidates_of(const ClusterModel& model, const std::vector<codec::Budget>& budgets,
                                              const std::function<bool(const Owner&)>& spare) {
  PreemptionCandidates all;
  for (const auto& budget : budgets) all.allowed.push_back(budget.allowed);
  for (const auto& uid : model.departed()) all.going.insert({OwnerKind::kPod, uid});
  const auto placed =
      model.pods_where([](const PodEntry& pod) { return pod.record.has_value() && !pod.object.node.empty(); });
  for (const auto& pod : placed) {
    const Owner owner = pod->owner();
    all.going.erase(owner);
    if (pod->object.deleting || pod->object.ended) {
      all.going.insert(owner);
    } else if (!pod->object.mirror && !(spare && spare(owner))) {
      Holder holder{owner, pod->object.priority, pod->object.started_at, {}};
      for (std::size_t i = 0; i < budgets.size(); ++i) {
        if (covers(budgets[i], pod->object.ask)) holder.budgets.push_back(i);
      }
      all.holders[pod->object.node].push_back(std::move(holder));
    }
  }
  return all;
}

Result<std::vector<codec::Budget>> read_budgets(KubeApi& api) {
  CARVE_TRY(const auto texts, api.list("/apis/policy/v1/poddisruptionbudgets"));
  std::vector<codec::Budget> all;
  for (const auto& text : texts) {
    CARVE_TRY(auto one, codec::parse_budget(text));
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace carve::control
