#include "core/policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/policy/node_policy.h"

namespace carve {

std::int64_t score_binpack(const CardState& card, const Offer& offer) {
  return -left_after(card, offer);
}

std::int64_t score_spread(const CardState& card, const Offer& offer) {
  // Owners without a compute guarantee leave compute free only in the ledger: fewer owners are better.
  return left_after(card, offer) * kOwnersAtMost - static_cast<std::int64_t>(card.use.owners);
}

Result<const PolicyRow*> policy_named(std::string_view name) {
  std::string names;
  for (const PolicyRow& row : kPolicies) {
    if (row.name == name) return &row;
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return fail(Code::kInvalidArgument,
              fmt::format("policy: \"{}\" is unknown; legal: {}", name.substr(0, 64), names));
}

bool has_opposite_class(const CardState& card, PriorityClass priority) {
  if (priority == PriorityClass::kStandard) return false;
  const auto opposite = priority == PriorityClass::kOnline ? PriorityClass::kOffline : PriorityClass::kOnline;
  return std::any_of(card.slices.begin(), card.slices.end(),
                     [&](const Slice& slice) { return slice.priority == opposite; });
}

std::vector<Slice> slices_for(const Owner& owner, const std::string& part, const Request& request,
                              const std::vector<PlacedCard>& placed) {
  std::vector<Slice> slices;
  slices.reserve(placed.size());
  for (const PlacedCard& card : placed) {
    slices.push_back(Slice{owner, part, card.card, card.memory, card.compute,
                           request.constraints.exclusive, request.whole, Phase::kRun, request.share,
                           request.priority, request.dialect, request.ceiling});
  }
  return slices;
}

}  // namespace carve
