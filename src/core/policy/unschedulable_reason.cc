#include "core/policy/unschedulable_reason.h"

#include <algorithm>
#include <optional>

#include "core/policy/refusals.h"

namespace carve {

// The reasons of cards come first and in the same order, so that a Refusal converts to an UnschedulableReason.
static_assert(static_cast<int>(UnschedulableReason::kMemory) == static_cast<int>(Refusal::kMemory));
static_assert(static_cast<int>(UnschedulableReason::kHeldAlone) == static_cast<int>(Refusal::kHeldAlone));
static_assert(static_cast<int>(UnschedulableReason::kCardClosed) == static_cast<int>(Refusal::kClosed));
static_assert(static_cast<int>(UnschedulableReason::kCardMode) == static_cast<int>(Refusal::kMode));
static_assert(static_cast<int>(UnschedulableReason::kQuota) == static_cast<int>(Refusal::kQuota));
static_assert(static_cast<int>(UnschedulableReason::kNotNamed) == static_cast<int>(Refusal::kNotNamed));

UnschedulableReason unschedulable_reason_on(const Ledger& ledger, const std::vector<PartRequest>& parts) {
  for (const PartRequest& part : parts) {
    if (ledger.cards().size() < part.request.count) return UnschedulableReason::kTooFew;
    std::size_t serve = 0;
    std::optional<Refusal> nearest;
    for (const CardState& card : ledger.cards()) {
      const auto why = refusal_of(card, part.request, offer_of(card, part.request));
      if (!why) {
        ++serve;
      } else {
        nearest = nearest ? std::min(*nearest, *why) : *why;
      }
    }
    if (serve < part.request.count)
      return nearest ? static_cast<UnschedulableReason>(*nearest) : UnschedulableReason::kTooFew;
  }
  return UnschedulableReason::kTooFew;
}

}  // namespace carve
