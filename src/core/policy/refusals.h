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
  kMemory,     // too little is free
  kCompute,    // too little is free
  kSlices,     // it has as many slices as a card can have, or as the asker may take
  kHeldAlone,  // somebody has the card alone
  kNotEmpty,   // the request wants the card alone
  kUnhealthy,
  kClosed,    // nothing new is put there
  kTooSmall,  // never: the card's whole memory is less
  kModel,     // never: another model
  kNotNamed,  // never: the request names other cards
};

/// What that card would give to the request.
///   kept_back  of kMaxSlicesPerCard so many are not for this request
[[nodiscard]] Offer offer_of(const CardState& card, const Request& request, std::uint32_t kept_back = 0);

/// nullopt when the card serves it.
[[nodiscard]] std::optional<Refusal> refusal_of(const CardState& card, const Request& request,
                                                const Offer& offer);

/// True when no slice that goes, and no card that heals, would change it.
[[nodiscard]] constexpr bool is_final(Refusal refusal) { return refusal >= Refusal::kTooSmall; }

struct RefusedCard {
  const CardState* card;
  Offer offer;
  Refusal why;
};

/// One sentence: "2 cards: largest free slice 3.2 GiB < 4 GiB; 1 card: no H200".
[[nodiscard]] std::string explain(const Request& request, const std::vector<RefusedCard>& refused);

}  // namespace carve
