#include "core/policy/victims.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace carve {
namespace {

constexpr std::size_t kExactHolders = 10;

using Set = std::vector<const Holder*>;

/// Finds the cheapest set of victims for one pod on one machine.
class VictimSearch {
 public:
  VictimSearch(const Ledger& ledger, const LinkMatrix& links, const Owner& owner, const std::vector<PartRequest>& parts,
         const PolicyRow& policy, const std::vector<std::int64_t>& allowed)
      : ledger_(ledger), links_(links), owner_(owner), parts_(parts), policy_(policy), allowed_(allowed) {}

  /// Tries only sets of these holders. False: not even all of them make room.
  bool among(const Set& some) {
    if (!consider(some)) return false;
    for (const bool large_last : {false, true}) consider(spare(some, large_last));
    if (some.size() <= kExactHolders) try_all(some);
    return true;
  }

  std::optional<VictimPlan> take() {
    if (plan_) {
      std::sort(plan_->victims.begin(), plan_->victims.end(),
                [](const Holder& a, const Holder& b) { return a.owner < b.owner; });
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] Result<std::vector<Slice>> placed_without(const Set& victims) const {
    Ledger rest = ledger_;
    for (const Holder* victim : victims) rest.remove_owner(victim->owner);
    return place_pod(rest, links_, owner_, parts_, policy_);
  }

  /// Keeps the set if it makes room and is cheaper than the best one so far. True: it makes room.
  bool consider(const Set& victims) {
    const auto cost = cost_of(victims, allowed_);
    auto placed = placed_without(victims);
    if (!placed) return false;
    if (plan_ && !(cost < plan_->cost)) return true;
    plan_ = VictimPlan{{}, cost, std::move(*placed)};
    for (const Holder* victim : victims) plan_->victims.push_back(*victim);
    return true;
  }

  [[nodiscard]] bool covered_by_a_spent_budget(const Holder& holder) const {
    return std::any_of(holder.budgets.begin(), holder.budgets.end(),
                       [&](std::size_t budget) { return budget < allowed_.size() && allowed_[budget] <= 0; });
  }

  [[nodiscard]] Bytes size_of(const Holder& holder) const {
    Bytes sum;
    for (const CardState& card : ledger_.cards()) {
      for (const Slice& slice : card.slices) {
        if (slice.owner == holder.owner) sum += slice.memory;
      }
    }
    return sum;
  }

  /// Starts with all as victims. Then spares each one while the pod still fits, the most important first, until no
  /// further one can be spared.
  [[nodiscard]] Set spare(Set victims, bool large_last) const {
    std::vector<std::tuple<bool, std::int64_t, Bytes, std::int64_t, const Holder*>> order;
    for (const Holder* one : victims) {
      order.emplace_back(!covered_by_a_spent_budget(*one), -std::int64_t{one->priority},
                         large_last ? size_of(*one) : Bytes(), one->started, one);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::tie(std::get<0>(a), std::get<1>(a), std::get<2>(a), std::get<3>(a)) <
             std::tie(std::get<0>(b), std::get<1>(b), std::get<2>(b), std::get<3>(b));
    });
    Ledger rest = ledger_;
    for (const Holder* victim : victims) rest.remove_owner(victim->owner);
    for (bool spared = true; std::exchange(spared, false);) {
      for (const auto& entry : order) {
        const Holder* one = std::get<4>(entry);
        const auto at = std::find(victims.begin(), victims.end(), one);
        if (at == victims.end()) continue;
        Ledger with = rest;
        // it was booked here before, so it fits
        if (!with.add(ledger_.slices_of(one->owner), Ledger::Admission::kRestored)) continue;
        if (!place_pod(with, links_, owner_, parts_, policy_)) continue;
        rest = std::move(with);
        victims.erase(at);
        spared = true;
      }
    }
    return victims;
  }

  void try_all(const Set& some) {
    for (std::size_t mask = 1; mask + 1 < std::size_t{1} << some.size(); ++mask) {
      Set victims;
      for (std::size_t i = 0; i < some.size(); ++i) {
        if ((mask >> i & 1) != 0) victims.push_back(some[i]);
      }
      if (cost_of(victims, allowed_) < plan_->cost) consider(victims);
    }
  }

  const Ledger& ledger_;
  const LinkMatrix& links_;
  const Owner& owner_;
  const std::vector<PartRequest>& parts_;
  const PolicyRow& policy_;
  const std::vector<std::int64_t>& allowed_;
  std::optional<VictimPlan> plan_;
};

Set on_card(const CardState& card, const Set& all) {
  Set some;
  for (const Holder* holder : all) {
    if (std::any_of(card.slices.begin(), card.slices.end(),
                    [&](const Slice& slice) { return slice.owner == holder->owner; }))
      some.push_back(holder);
  }
  return some;
}

}  // namespace

VictimCost cost_of(const std::vector<const Holder*>& victims, const std::vector<std::int64_t>& allowed) {
  VictimCost cost;
  cost.highest = std::numeric_limits<std::int32_t>::min();
  cost.count = victims.size();
  for (const Holder* victim : victims) {
    cost.highest = std::max<std::int64_t>(cost.highest, victim->priority);
    cost.sum += std::int64_t{victim->priority} + std::numeric_limits<std::int32_t>::max() + 1;
  }
  bool any = false;
  for (const Holder* victim : victims) {
    if (victim->priority != cost.highest) continue;
    cost.early = any ? std::max(cost.early, -victim->started) : -victim->started;
    any = true;
  }
  for (std::size_t budget = 0; budget < allowed.size(); ++budget) {
    const auto covered = std::count_if(victims.begin(), victims.end(), [&](const Holder* victim) {
      return std::find(victim->budgets.begin(), victim->budgets.end(), budget) != victim->budgets.end();
    });
    const auto beyond = covered - std::max<std::int64_t>(allowed[budget], 0);
    if (beyond > 0) cost.violations += static_cast<std::size_t>(beyond);
  }
  return cost;
}

std::optional<VictimPlan> choose_victims(const Ledger& ledger, const LinkMatrix& links, const Owner& owner,
                                         const std::vector<PartRequest>& parts, const PolicyRow& policy,
                                         std::int32_t priority, const std::vector<Holder>& holders,
                                         const std::vector<std::int64_t>& allowed) {
  VictimSearch search(ledger, links, owner, parts, policy, allowed);
  if (search.among({})) return search.take();
  std::set<Owner> there;
  for (const CardState& card : ledger.cards()) {
    for (const Slice& slice : card.slices) there.insert(slice.owner);
  }
  Set all;
  for (const Holder& holder : holders) {
    if (holder.priority < priority && there.contains(holder.owner)) all.push_back(&holder);
  }
  std::sort(all.begin(), all.end(), [](const Holder* a, const Holder* b) { return a->owner < b->owner; });
  if (all.empty() || !search.among(all)) return std::nullopt;
  if (all.size() > kExactHolders) {
    for (const CardState& card : ledger.cards()) {
      const Set some = on_card(card, all);
      if (!some.empty()) (void)search.among(some);
    }
  }
  return search.take();
}

}  // namespace carve
