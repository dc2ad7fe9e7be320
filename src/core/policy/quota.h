#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/ledger/ledger.h"
#include "core/model/request.h"

namespace carve {

/// A number of cards in hundredths of a card: 250 are two and a half cards.
using CardParts = std::uint64_t;

/// How many cards of some models the pods of one namespace may hold together.
struct Quota {
  std::string model;    // a part of the model's name, in any case (model_matches); empty: all models
  CardParts limit = 0;
  friend bool operator==(const Quota&, const Quota&) = default;
};

/// By namespace. A namespace without an entry has no quota. A card counts for each quota of its namespace that its
/// model matches.
using Quotas = std::map<std::string, std::vector<Quota>, std::less<>>;

/// The most hundredths of a card that a quota may have: a million cards.
inline constexpr CardParts kLargestQuota = 100'000'000;

/// How much of its card an owner takes: the larger of its parts of memory and guaranteed compute (its dominant share:
/// Ghodsi et al., "Dominant Resource Fairness", 2011), rounded up to a hundredth. An owner that holds the card
/// exclusively takes all of it.
[[nodiscard]] CardParts parts_taken(const Holding& holding, const Card& card);
/// The same of a request for all its cards, if they are like `card`. 0: it does not accept such cards.
[[nodiscard]] CardParts parts_taken(const Request& request, const Card& card);
/// The same of all containers of a pod. The init containers run one at a time before the others, and count only beyond
/// them.
[[nodiscard]] CardParts parts_taken(const std::vector<PartRequest>& parts, const Card& card);

/// "2", "2.5": a number of cards.
[[nodiscard]] std::string to_human_cards(CardParts parts);

}  // namespace carve
