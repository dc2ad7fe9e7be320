#include "core/policy/hindrance.h"

#include <algorithm>
#include <optional>

#include "core/policy/refusals.h"

namespace carve {

// The reasons of cards come first and in the same order, so that a Refusal converts to a Hindrance.
static_assert(static_cast<int>(Hindrance::kMemory) == static_cast<int>(Refusal::kMemory));
static_assert(static_cast<int>(Hindrance::kHeldAlone) == static_cast<int>(Refusal::kHeldAlone));
static_assert(static_cast<int>(Hindrance::kCardClosed) == static_cast<int>(Refusal::kClosed));
static_assert(static_cast<int>(Hindrance::kNotNamed) == static_cast<int>(Refusal::kNotNamed));

Hindrance hindrance_on(const Ledger& ledger, const std::vector<PartRequest>& parts) {
  for (const PartRequest& part : parts) {
    if (ledger.cards().size() < part.request.count) return Hindrance::kTooFew;
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
    if (serve < part.request.count) return nearest ? static_cast<Hindrance>(*nearest) : Hindrance::kTooFew;
  }
  return Hindrance::kTooFew;
}

}  // namespace carve
