#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ledger/ledger.h"
#include "core/model/request.h"
#include "core/topology/links.h"

namespace carve {

/// What one card would give to a request.
struct Offer {
  Bytes memory;       // the requested amount on this card
  CoreShare compute;  // as requested
  CoreShare guarantee;
  std::uint32_t most_slices = kMaxSlicesPerCard;  // that the card may have, with this one
};

/// A policy is one row: a name, a sentence for `--help`, and the score of a card that already fits; higher is better. A
/// new policy needs only a function and a row (docs/writing_a_policy.md).
struct PolicyRow {
  std::string_view name;
  std::string_view summary;
  std::int64_t (*score)(const CardState& card, const Offer& offer);
};

/// The largest number of owners, on a card or a node, that a score can tell apart.
inline constexpr std::int64_t kOwnersAtMost = 1024;

/// Fill the fullest card that still fits, so that whole cards stay free.
[[nodiscard]] std::int64_t score_binpack(const CardState& card, const Offer& offer);
/// Take the emptiest card, so that a slice has few neighbours.
[[nodiscard]] std::int64_t score_spread(const CardState& card, const Offer& offer);

/// All policies; the first one is the default.
inline constexpr std::array<PolicyRow, 2> kPolicies = {{
    {"binpack", "fill the fullest card that still fits; keeps whole cards free", score_binpack},
    {"spread", "take the emptiest card; few neighbours", score_spread},
}};

/// The row of that name; the error kInvalidArgument lists the names.
[[nodiscard]] Result<const PolicyRow*> policy_named(std::string_view name);

/// True: the card has slices of the opposite priority class, which is offline for an online request, and online for an
/// offline one. A request gets such a card only if no other serves it, whatever the policy: online work is then served
/// without a pause, and offline work is not held up.
///   cost    O(slices of the card)
///   source  Tencent qGPU, online and offline pods
[[nodiscard]] bool has_opposite_class(const CardState& card, PriorityClass priority);

/// One card of a placement, and the future slice on it.
struct PlacedCard {
  CardId card;
  Bytes memory;
  CoreShare compute;
  friend bool operator==(const PlacedCard&, const PlacedCard&) = default;
};

/// Chooses `request.count` distinct cards for a request on one machine: filter, score, choose. It changes nothing.
/// Ledger::add() of slices_for() accepts the result while the ledger does not change.
///   in      links: how the cards are connected (may be empty). For several whole cards the best connected set wins,
///           and the score decides between equals; otherwise has_opposite_class(), then the score, then the links
///   kept_back  the number of each card's kMaxSlicesPerCard that this request cannot take (they are kept for root)
///   out     the cards sorted by UUID; the same input gives the same output, ties go to the lower UUID
///   errors  kInvalidArgument: validate() reports faults; kResourceExhausted: there is no room now, but there would be
///           if slices ended; kFailedPrecondition: never on this machine (too few or too small cards, no such model).
///           The last two explain the refusal in one sentence, grouped by reason: "2 cards: largest free slice 3.2 GiB
///           < 4 GiB; 1 card: model is not H200"
///   cost    O(cards); sets of several cards: exact up to 16 candidates (at most 12,870 sets), greedy above
[[nodiscard]] Result<std::vector<PlacedCard>> place(const Ledger& ledger, const LinkMatrix& links,
                                                    const Request& request,
                                                    const PolicyRow& policy,
                                                    std::uint32_t kept_back = 0);

/// The slices of a placement, ready for Ledger::add().
[[nodiscard]] std::vector<Slice> slices_for(const Owner& owner, const std::string& part,
                                            const Request& request,
                                            const std::vector<PlacedCard>& placed);

}  // namespace carve
