#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ledger/ledger.h"
#include "core/model/request.h"
#include "core/policy/policy.h"

namespace carve {

/// Why one card does not serve a request. The order is that of the explanation.
enum class Refusal : std::uint8_t {
  kMemory,     // too little free memory
  kCompute,    // too little free compute
  kSlices,     // the card has as many slices as it can have, or as the user can take
  kHeldAlone,  // another owner holds the card exclusively
  kNotEmpty,   // the request is exclusive, and the card has slices
  kUnhealthy,
  kClosed,    // takes no new slice
  kMode,      // its mode does not permit such requests
  kQuota,     // permanent while the quota of the namespace is used up
  kTooSmall,  // permanent: the card's total memory is too small
  kTooSlow,   // permanent: a rate is requested that the card does not have, or whose model's rate is unknown
  kModel,     // permanent: another model is requested
  kNotNamed,  // permanent: the request names other cards
};

/// What that card would give to the request.
///   kept_back  the number of each card's kMaxSlicesPerCard that this request cannot take
[[nodiscard]] Offer offer_of(const CardState& card, const Request& request, std::uint32_t kept_back = 0);

/// That card with what it gives to the request.
[[nodiscard]] PlacedCard placed_on(const CardState& card, const Request& request);

/// nullopt when the card serves it.
[[nodiscard]] std::optional<Refusal> refusal_of(const CardState& card, const Request& request,
                                                const Offer& offer);

/// True when no leaving slice of another namespace and no recovering card would change it.
[[nodiscard]] constexpr bool is_final(Refusal refusal) { return refusal >= Refusal::kQuota; }

struct RefusedCard {
  const CardState* card;
  Offer offer;
  Refusal why;
};

/// One sentence: "2 cards: largest free slice 3.2 GiB < 4 GiB; 1 card: model is not H200".
[[nodiscard]] std::string explain(const Request& request, const std::vector<RefusedCard>& refused);

}  // namespace carve
