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
  Bytes memory;       // what is asked for, on this card
  CoreShare compute;  // as asked
  CoreShare guarantee;
  std::uint32_t most_slices = kMaxSlicesPerCard;  // of the card, this one included
};

/// A policy is one row: a name, a sentence for `--help`, and a score of a card that already fits; the higher
/// the better. A new policy is a function and a row, nothing else (docs/writing_a_policy.md).
struct PolicyRow {
  std::string_view name;
  std::string_view summary;
  std::int64_t (*score)(const CardState& card, const Offer& offer);
};

/// The owners of a card, or of a node, that a score tells apart; a score leaves room for this many.
inline constexpr std::int64_t kOwnersAtMost = 4096;

/// Fill the fullest card that still fits, so that whole cards stay whole.
[[nodiscard]] std::int64_t score_binpack(const CardState& card, const Offer& offer);
/// Take the emptiest card, so that neighbours are few.
[[nodiscard]] std::int64_t score_spread(const CardState& card, const Offer& offer);

/// Every policy there is; the first one is the default.
inline constexpr std::array<PolicyRow, 2> kPolicies = {{
    {"binpack", "fill the fullest card that still fits; whole cards stay whole", score_binpack},
    {"spread", "take the emptiest card; neighbours are few", score_spread},
}};

/// The row of that name; kInvalidArgument lists the names.
[[nodiscard]] Result<const PolicyRow*> policy_named(std::string_view name);

/// One card of a placement, and what the slice on it will be.
struct PlacedCard {
  CardId card;
  Bytes memory;
  CoreShare compute;
  friend bool operator==(const PlacedCard&, const PlacedCard&) = default;
};

/// Chooses `request.count` distinct cards for a request on one machine: filter, score, choose. Changes
/// nothing; Ledger::add() of slices_for() then cannot be refused while the ledger is the same.
///   in      links: how the cards are connected (may be empty). For several whole cards the best connected
///           set wins and the score decides between equals; otherwise the score decides and links between equals
///   kept_back  of each card's kMaxSlicesPerCard so many are not for this request (they are root's)
///   out     the cards sorted by UUID; the same input gives the same output, ties go to the lower UUID
///   errors  kInvalidArgument: validate() has something to say; kResourceExhausted: not now, it would fit if
///           slices went; kFailedPrecondition: never on this machine (too few or too small cards, no such
///           model). Both explain in one sentence, grouped: "2 cards: largest free slice 3.2 GiB < 4 GiB;
///           1 card: no H200"
///   cost    O(cards); sets of several cards: exact up to 16 candidates (at most 12,870 sets), greedy above
[[nodiscard]] Result<std::vector<PlacedCard>> place(const Ledger& ledger, const LinkMatrix& links,
                                                    const Request& request,
                                                    const PolicyRow& policy,
                                                    std::uint32_t kept_back = 0);

/// The slices that a placement stands for, ready for Ledger::add().
[[nodiscard]] std::vector<Slice> slices_for(const Owner& owner, const std::string& part,
                                            const Request& request,
                                            const std::vector<PlacedCard>& placed);

}  // namespace carve
