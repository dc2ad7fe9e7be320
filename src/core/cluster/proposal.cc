#include "core/cluster/proposal.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace carve {
namespace {

/// The proposed owners that have slices here, the most important first. An owner that is not among `known` has the
/// lowest importance.
std::vector<Holder> holders_among(const std::vector<Owner>& proposed, const std::vector<Holder>& known,
                                  const Ledger& ledger) {
  std::vector<Holder> found;
  for (const Owner& owner : proposed) {
    if (ledger.slices_of(owner).empty()) continue;
    const auto holder = std::find_if(known.begin(), known.end(), [&](const Holder& one) { return one.owner == owner; });
    found.push_back(holder == known.end() ? Holder{owner, INT32_MIN} : *holder);
  }
  std::sort(found.begin(), found.end(), [](const Holder& a, const Holder& b) {
    return std::tuple(-std::int64_t{a.priority}, a.started, a.owner) <
           std::tuple(-std::int64_t{b.priority}, b.started, b.owner);
  });
  return found;
}

Ledger without(Ledger ledger, const std::vector<Holder>& gone) {
  for (const Holder& holder : gone) ledger.remove_owner(holder.owner);
  return ledger;
}

void count_down(const Holder& holder, std::vector<std::int64_t>* allowed) {
  for (const std::size_t budget : holder.budgets) {
    if (budget < allowed->size()) (*allowed)[budget] = std::max<std::int64_t>(0, (*allowed)[budget] - 1);
  }
}

std::size_t violations(const std::vector<Holder>& victims, const std::vector<std::int64_t>& allowed) {
  std::vector<const Holder*> all;
  for (const Holder& victim : victims) all.push_back(&victim);
  return cost_of(all, allowed).violations;
}

}  // namespace

ProposalAnswer correct_proposal(const NodeState& node, const std::string& name, const Owner& owner,
                                const std::vector<PartRequest>& parts, std::int32_t priority, const PolicyRow& policy,
                                const std::vector<Owner>& proposed, const PreemptionCandidates& candidates) {
  if (!closed_for(node, parts).empty()) return {};  // the node takes no new pod, regardless of the victims
  if (std::binary_search(node.reserved.begin(), node.reserved.end(), owner)) return {ProposalVerdict::kAccepted, {}};
  const SeenLedger seen(node, owner, priority);
  Ledger now = *seen;
  for (const Owner& one : candidates.going) now.remove_owner(one);
  const auto fits = [&](const Ledger& ledger) {
    return place_pod(ledger, node.links, owner, parts, policy).has_value();
  };
  static const std::vector<Holder> kNoHolders;
  const auto there = candidates.holders.find(name);
  const auto& known = there == candidates.holders.end() ? kNoHolders : there->second;
  std::vector<Holder> named = holders_among(proposed, known, now);
  const Ledger rest = without(now, named);
  if (fits(rest)) return {ProposalVerdict::kAccepted, {}};

  std::vector<Holder> others;
  for (const Holder& holder : known) {
    if (std::find(proposed.begin(), proposed.end(), holder.owner) == proposed.end()) others.push_back(holder);
  }
  auto allowed = candidates.allowed;
  for (const Holder& holder : named) count_down(holder, &allowed);
  const auto plan = choose_victims(rest, node.links, owner, parts, policy, priority, others, allowed);
  if (!plan || plan->victims.empty()) return {};
  // Of the proposed owners, only the owners of needed cards are evicted now; the most important ones are kept first.
  std::vector<Holder> go = plan->victims;
  while (!named.empty()) {
    const Holder one = named.front();
    named.erase(named.begin());
    if (!fits(without(without(now, go), named))) go.push_back(one);
  }
  if (violations(go, candidates.allowed) > 0) return {};
  // Sorted as in kube-scheduler's own lists: among the remaining nodes it picks the one with the first victim that is
  // the least important.
  std::sort(go.begin(), go.end(), [](const Holder& a, const Holder& b) {
    return std::tuple(-std::int64_t{a.priority}, a.started, a.owner) <
           std::tuple(-std::int64_t{b.priority}, b.started, b.owner);
  });
  ProposalAnswer answer{ProposalVerdict::kOtherVictims, {}};
  for (const Holder& victim : go) answer.victims.push_back(victim.owner);
  return answer;
}

}  // namespace carve
