#include "core/cluster/room.h"

#include <algorithm>
#include <utility>

namespace carve {
namespace {

Ledger without_those_going(Ledger ledger, const std::set<Owner>& going) {
  std::set<Owner> here;
  for (const CardState& card : ledger.cards()) {
    for (const Slice& slice : card.slices) {
      if (going.contains(slice.owner)) here.insert(slice.owner);
    }
  }
  for (const Owner& owner : here) ledger.remove_owner(owner);
  return ledger;
}

bool better(const FoundRoom& a, const FoundRoom& b) {
  return a.plan.cost != b.plan.cost ? a.plan.cost < b.plan.cost : a.node < b.node;
}

}  // namespace

FoundRoom find_room(const ClusterState& cluster, const Owner& owner, const std::vector<PartRequest>& parts,
                    std::int32_t priority, const std::vector<std::string>& names,
                    const std::function<const PolicyRow&(const std::string& node)>& policy,
                    const PreemptionCandidates& candidates) {
  FoundRoom best;
  std::size_t cleared = 0;
  for (const std::string& name : names) {
    const auto node = cluster.find(name);
    if (node == cluster.end()) continue;
    const NodeState& state = *node->second;
    // The node may open to them again, but the time is unknown: a pod that could have room elsewhere does not wait for
    // it.
    if (!closed_by_dialect(state, parts).empty()) continue;
    const PolicyRow& row = policy(name);
    const bool reserved = std::binary_search(state.reserved.begin(), state.reserved.end(), owner);
    const SeenLedger seen(state, owner, priority);
    const bool fits = reserved || place_pod(*seen, state.links, owner, parts, row);
    if (fits && state.closed.empty()) return {Room::kThere, name, {}};
    if (fits) best = {Room::kComing, name, {}};  // the node opens again soon: no pod is evicted for this one
    if (!state.closed.empty()) continue;
    if (best.room == Room::kComing || cleared >= kMostNodesToClear) continue;
    const Ledger rest = without_those_going(*seen, candidates.going);
    const auto holders = candidates.holders.find(name);
    static const std::vector<Holder> kNoHolders;
    auto plan = choose_victims(rest, state.links, owner, parts, row, priority,
                               holders == candidates.holders.end() ? kNoHolders : holders->second, candidates.allowed);
    if (!plan) continue;
    ++cleared;
    FoundRoom found{plan->victims.empty() ? Room::kComing : Room::kForOthers, name, std::move(*plan)};
    if (found.room == Room::kComing || best.room == Room::kNone || better(found, best)) best = std::move(found);
  }
  return best;
}

}  // namespace carve
