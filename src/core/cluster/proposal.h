#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/room.h"

namespace carve {

/// The answer to kube-scheduler's proposal of victims on a node for a pod.
enum class ProposalVerdict : std::uint8_t {
  kAccepted,      // when the victims and the pods that already terminate are gone, the pod also fits by card
  kOtherVictims,  // the cards need other victims: evict these first; kube-scheduler then proposes the rest
  kHopeless,      // the pod would not fit by card, or a budget protects the pods that would have to be evicted
};

struct ProposalAnswer {
  ProposalVerdict verdict = ProposalVerdict::kHopeless;
  std::vector<Owner> victims;  // kOtherVictims: the owners to evict, the most important first
};

/// kube-scheduler counts CPU, memory and ports, and proposes the victims that those need. Carve counts cards. Where the
/// cards need a further victim, the union of both sets may contain a needless one: the owner of a card may also free
/// the CPU, which Carve cannot see. So the victims that the cards need are evicted first, from either set. None of them
/// is needless: while any one of them stays, the pod does not fit by card; and kube-scheduler has found that the pod
/// fits in everything else without its own victims. Then kube-scheduler is asked again and proposes the remaining
/// victims. Pure.
///   in      proposed: in any order; owners without slices here are left to kube-scheduler
///           candidates: of node `name`; the victims that the cards need stay within its budgets
///   cost    choose_victims(), and place_pod() per proposed owner with slices here
[[nodiscard]] ProposalAnswer correct_proposal(const NodeState& node, const std::string& name, const Owner& owner,
                                              const std::vector<PartRequest>& parts, std::int32_t priority,
                                              const PolicyRow& policy, const std::vector<Owner>& proposed,
                                              const PreemptionCandidates& candidates);

}  // namespace carve
