#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/policy/place_pod.h"

namespace carve {

/// An owner with slices on a machine that could be evicted.
struct Holder {
  Owner owner;
  std::int32_t priority = 0;
  std::int64_t started = 0;               // any unit; the larger, the less work is lost
  std::vector<std::size_t> budgets = {};  // the budgets that cover it, as indexes into the list of budgets
  friend bool operator==(const Holder&, const Holder&) = default;
};

/// The cost of evicting a set of victims, the most important criterion first; less is better. The order is that in
/// which kube-scheduler compares its candidates (pickOneNodeForPreemption).
struct VictimCost {
  std::size_t violations = 0;  // of budgets: evictions beyond those that they allow
  std::int64_t highest = 0;    // the highest priority of a victim
  std::int64_t sum = 0;        // of the priorities, each shifted above 0: two victims always cost more than one of them
  std::size_t count = 0;
  std::int64_t early = 0;  // minus the earliest start among the victims of the highest priority
  friend auto operator<=>(const VictimCost&, const VictimCost&) = default;
};

/// The cost of these victims together. `allowed`: the number of evictions that each budget still allows.
[[nodiscard]] VictimCost cost_of(const std::vector<const Holder*>& victims, const std::vector<std::int64_t>& allowed);

/// The victims, and what the pod gets without them.
struct VictimPlan {
  std::vector<Holder> victims;  // sorted by owner; empty: the pod fits without victims
  VictimCost cost;
  std::vector<Slice> slices;  // the result of place_pod() on the ledger without the victims
};

/// The cheapest owners to evict to make room for a pod on one machine. An eviction ends a whole pod, so victims are
/// whole owners. Only those of `holders` with a priority below `priority` are considered; all other slices stay. Every
/// victim is necessary: if any one of them stayed, the pod would not fit. Budgets are violated only where nothing else
/// makes room (cost.violations has the number; the Eviction API will refuse those evictions).
///   out     nullopt: the pod would not fit even if all of them were evicted
///   cost    the best of all sets where at most 10 owners may be evicted or, for one card, at most 10 on each card.
///           Else, for each card and for the machine, the better of two greedy sets: all are evicted, and the most
///           important ones are kept while the pod still fits. place_pod() per owner and card, more where sets are
///           tried
///   source  kube-scheduler's SelectVictimsOnNode, with cards in place of a Node's sums
[[nodiscard]] std::optional<VictimPlan> choose_victims(const Ledger& ledger, const LinkMatrix& links,
                                                       const Owner& owner, const std::vector<PartRequest>& parts,
                                                       const PolicyRow& policy, std::int32_t priority,
                                                       const std::vector<Holder>& holders,
                                                       const std::vector<std::int64_t>& allowed);

}  // namespace carve
