#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/policy/place_pod.h"

namespace carve {

/// Somebody who holds on a machine and could be asked to go.
struct Holder {
  Owner owner;
  std::int32_t priority = 0;
  std::int64_t started = 0;               // any unit; the larger, the less work is lost
  std::vector<std::size_t> budgets = {};  // those that cover it, by their place in the list of budgets
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// How bad it is that somebody goes, the worst first: less is better. The order is that in which kube-scheduler
/// compares its candidates (pickOneNodeForPreemption).
struct VictimCost {
  std::size_t violations = 0;  // of budgets: evictions beyond what they allow
  std::int64_t highest = 0;    // priority of a victim
  std::int64_t sum = 0;        // of the priorities, each lifted above 0: two always weigh more than one of them
  std::size_t count = 0;
  std::int64_t early = 0;  // minus the earliest start among the victims of the highest priority
  friend auto operator<=>(const VictimCost&, const VictimCost&) = default;
};

/// The cost of these victims together. `allowed`: how many evictions each budget still allows.
[[nodiscard]] VictimCost cost_of(const std::vector<const Holder*>& victims, const std::vector<std::int64_t>& allowed);

/// Who goes, and what the pod gets then.
struct VictimPlan {
  std::vector<Holder> victims;  // sorted by owner; none: it fits as it is
  VictimCost cost;
  std::vector<Slice> slices;  // place_pod()'s on the ledger without the victims
};

/// The cheapest owners whose going makes room for a pod on one machine; whole owners, since an eviction ends a whole
/// pod. Only those of `holders` with a priority below `priority` are considered; what else holds there stays. No
/// victim is in vain: without any one of them it would not fit. Budgets are broken only where nothing else makes room
/// (cost.violations says by how much: the Eviction API will refuse those).
///   out     nullopt: it would not fit if all of them went
///   cost    the best of all sets where at most 10 may go, or, for one card, at most 10 on each card; else for each
///           card and for the machine the better of two greedy sets: everybody goes, and the most important ones are
///           kept while it still fits. place_pod() per holder and card, more where sets are tried
///   source  kube-scheduler's SelectVictimsOnNode, with cards in place of a Node's sums
[[nodiscard]] std::optional<VictimPlan> choose_victims(const Ledger& ledger, const LinkMatrix& links,
                                                       const Owner& owner, const std::vector<PartRequest>& parts,
                                                       const PolicyRow& policy, std::int32_t priority,
                                                       const std::vector<Holder>& holders,
                                                       const std::vector<std::int64_t>& allowed);

}  // namespace carve
