#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/room.h"

namespace carve {

/// What becomes of a proposal of kube-scheduler's, who would have to go on a node for a pod.
enum class ProposalWord : std::uint8_t {
  kStands,       // once they and those who are going anyway have gone, the pod fits by card too
  kOthersFirst,  // cards need others: first these, then what CPU and the like still need is asked for anew
  kInVain,       // it would not fit by card, or a budget protects whom that needs
};

struct ProposalAnswer {
  ProposalWord word = ProposalWord::kInVain;
  std::vector<Owner> victims;  // kOthersFirst: who goes; sorted
};

/// kube-scheduler counts CPU, memory, ports, and proposes exactly whom those need; we count cards. Where cards need
/// somebody else too, the two sets together may hold one in vain: who holds the card may free the CPU as well, and that
/// we cannot see. So those go first whom the cards need, of either set: nobody among them is in vain, whatever else is
/// needed, for with any of them there the pod does not fit by card, and kube-scheduler has found that with all of its
/// own gone it fits in everything else. When they have gone it is asked again, and proposes who is left to go. Pure.
///   in      proposed: in any order; those who hold nothing here are kube-scheduler's own matter
///           standing: of `name`; its budgets are kept by those whom the cards need
///   cost    choose_victims(), and place_pod() per holder among the proposed
[[nodiscard]] ProposalAnswer correct_proposal(const NodeState& node, const std::string& name, const Owner& owner,
                                              const std::vector<PartRequest>& parts, std::int32_t priority,
                                              const PolicyRow& policy, const std::vector<Owner>& proposed,
                                              const PreemptionCandidates& standing);

}  // namespace carve
