#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "app/control/cluster_model.h"
#include "base/log.h"
#include "codec/cluster/budget.h"
#include "codec/dialects/dialect.h"
#include "core/policy/rules.h"

namespace carve::control {

/// The answer to kube-scheduler's preempt call. It comes for a pod that lacks CPU or the like: kube-scheduler proposes
/// who would have to go on which nodes, and evicts by what is answered. Where cards are missing as well the proposal is
/// corrected (core/cluster/proposal.h): a node on which the pod would not fit by card after it is dropped, so that
/// nobody is evicted in vain; on others those go first whom the cards need. Where room is made for the pod already,
/// that node is the only one. Pods that lack nothing but cards are the Preemptor's. Safe from any thread, on any
/// replica.
class PreemptVerb {
 public:
  struct World {
    const ClusterModel& model;
    codec::DialectSettings settings;
    std::function<std::shared_ptr<const PlacementRules>()> rules;
    std::function<Result<std::vector<codec::Budget>>()> budgets;  // as they are now; asked for only where it matters
    std::function<void(const Owner&)> on_preempt;  // kube-scheduler evicts for that pod: nobody else is to; may be empty
    Log& log;
  };
  explicit PreemptVerb(World world) : world_(std::move(world)) {}

  /// ExtenderPreemptionArgs in, ExtenderPreemptionResult out. A call that cannot be read drops all nodes.
  ///   cost    preemption_candidates_of(); correct_proposal() per node; one list of budgets where cards need others
  [[nodiscard]] std::string answer(std::string_view call) const;

 private:
  World world_;
};

}  // namespace carve::control
