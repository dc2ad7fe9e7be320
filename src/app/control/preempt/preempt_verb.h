#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "app/control/state/cluster_model.h"
#include "base/log.h"
#include "codec/cluster/budget.h"
#include "codec/dialects/dialect.h"
#include "core/policy/rules.h"

namespace carve::control {

/// Answers kube-scheduler's preempt call. kube-scheduler makes this call for a pod that lacks CPU or another resource
/// of its own: it proposes victims per node, and evicts according to the answer. If the pod also lacks cards, the
/// answer corrects the proposal (core/cluster/proposal.h): it drops a node where the pod would still not fit by card,
/// so that no pod is evicted unnecessarily. On a node where cards need other victims, it names those first;
/// kube-scheduler proposes again when they are gone. If room is already being made for the pod on a node, the answer
/// contains only that node. Pods that lack only cards are the Preemptor's task. Safe from any thread, on any replica.
class PreemptVerb {
 public:
  struct World {
    const ClusterModel& model;
    codec::DialectSettings settings;
    std::function<std::shared_ptr<const PlacementRules>()> rules;
    std::function<Result<std::vector<codec::Budget>>()> budgets;  // the current ones; called only if needed
    /// kube-scheduler evicts for that pod, so no other component should; may be empty.
    std::function<void(const Owner&)> on_preempt;
    Log& log;
    ClaimBook* claims = nullptr;  // nullptr: claims are not read
  };
  explicit PreemptVerb(World world) : world_(std::move(world)) {}

  /// Takes ExtenderPreemptionArgs and returns ExtenderPreemptionResult. For a call that cannot be parsed the result
  /// contains no node, and the log says why: the result has no place for an error.
  ///   cost    preemption_candidates_of(); correct_proposal() per node; one list of budgets if cards need other victims
  [[nodiscard]] std::string answer(std::string_view call) const;

 private:
  [[nodiscard]] std::string refuse(const Error& error) const;

  World world_;
};

}  // namespace carve::control
