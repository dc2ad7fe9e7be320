#include "core/policy/node_policy.h"

#include <algorithm>

namespace carve {
namespace {

constexpr std::uint64_t kMillion = 1'000'000;

}  // namespace

std::int64_t left_after(const CardState& card, const Offer& offer) {
  const Bytes memory = card.free_memory() - offer.memory;
  const auto of_card = static_cast<unsigned __int128>(memory.count()) * kMillion /
                       (card.card.memory.count() == 0 ? 1 : card.card.memory.count());
  const CoreShare compute = card.free_compute() - offer.guarantee;
  return static_cast<std::int64_t>(of_card) + static_cast<std::int64_t>(compute.hundredths() * (kMillion / 100));
}

Leftover leftover_of(const Ledger& ledger, const std::vector<Slice>& slices) {
  Leftover left;
  std::int64_t given = 0;
  for (const Slice& slice : slices) {
    const CardState& card = *ledger.find(slice.card);
    const auto after = left_after(card, {slice.memory, slice.compute, slice.guarantee()});
    left.cards += after;
    left.owners += card.use.owners;
    left.mixed = left.mixed || has_opposite_class(card, slice.priority);
    if (slice.phase == Phase::kRun) given += left_after(card, {}) - after;
  }
  std::int64_t open = 0;
  for (const CardState& card : ledger.cards()) {
    if (!card.card.health.ok || !card.card.closed.empty()) continue;
    left.node += left_after(card, {});
    ++open;
  }
  if (!slices.empty()) left.cards /= static_cast<std::int64_t>(slices.size());
  if (open > 0) left.node = std::max<std::int64_t>(left.node - given, 0) / open;
  return left;
}

std::int64_t score_node_binpack(const Leftover& left) {
  return ((kAllLeft - left.cards) * (kAllLeft + 1) + (kAllLeft - left.node)) * kOwnersAtMost;
}

std::int64_t score_node_spread(const Leftover& left) {
  const auto owners = std::min<std::int64_t>(left.owners, kOwnersAtMost - 1);
  return (left.node * (kAllLeft + 1) + left.cards) * kOwnersAtMost + (kOwnersAtMost - 1 - owners);
}

std::int64_t score_of(const NodePolicyRow& row, const Leftover& left) {
  return row.score(left) + (left.mixed ? 0 : kBestNode + 1);
}

const NodePolicyRow* node_policy_named(std::string_view name) {
  const auto* found = std::find_if(kNodePolicies.begin(), kNodePolicies.end(),
                                   [&](const NodePolicyRow& row) { return row.name == name; });
  return found == kNodePolicies.end() ? nullptr : found;
}

}  // namespace carve
