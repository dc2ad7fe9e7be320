#include "core/policy/place_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace carve {
namespace {

std::vector<Slice> slices_of_part(const Owner& owner, const PartRequest& part,
                                  const std::vector<PlacedCard>& placed) {
  std::vector<Slice> slices = slices_for(owner, part.part, part.request, placed);
  for (Slice& slice : slices) slice.phase = part.phase;
  return slices;
}

/// The first `count` cards that the owner has, in spec order; fewer when it has fewer.
std::vector<CardId> first_cards(const std::vector<Slice>& slices, std::size_t count) {
  std::vector<CardId> cards;
  for (const Slice& slice : slices) {
    if (cards.size() == count) break;
    if (std::find(cards.begin(), cards.end(), slice.card) == cards.end())
      cards.push_back(slice.card);
  }
  return cards;
}

/// On the owner's own cards, which its run parts use after it: the ledger says whether the larger
/// of both fits.
Result<std::vector<Slice>> on_own_cards(const Ledger& ledger, const Owner& owner,
                                        const PartRequest& part, const std::vector<CardId>& cards) {
  std::vector<PlacedCard> placed;
  for (const CardId& card : cards) {
    const CardState& state = *ledger.find(card);
    if (!model_matches(state.card.model, part.request.constraints.model)) {
      return fail(Code::kFailedPrecondition, card.str() + ": no " + part.request.constraints.model);
    }
    placed.push_back({card, part.request.memory.on(state.card.memory), part.request.compute});
  }
  auto slices = slices_of_part(owner, part, placed);
  Ledger tried = ledger;
  CARVE_TRY_VOID(tried.add(slices));
  return slices;
}

Result<std::vector<Slice>> place_part(const Ledger& ledger, const LinkMatrix& links,
                                      const Owner& owner, const PartRequest& part,
                                      const std::vector<Slice>& own, const PolicyRow& policy) {
  if (part.phase == Phase::kInit && part.request.constraints.cards.empty()) {
    const auto cards = first_cards(own, part.request.count);
    if (cards.size() == part.request.count) {
      CARVE_TRY_VOID(joined(validate(part.request)));
      if (auto slices = on_own_cards(ledger, owner, part, cards)) return slices;
    }
  }
  CARVE_TRY(const auto placed, place(ledger, links, part.request, policy));
  return slices_of_part(owner, part, placed);
}

}  // namespace

Result<std::vector<Slice>> place_pod(const Ledger& ledger, const LinkMatrix& links,
                                     const Owner& owner, const std::vector<PartRequest>& parts,
                                     const PolicyRow& policy) {
  if (parts.empty()) return fail(Code::kInvalidArgument, "nothing is asked for");
  std::set<std::string> names;
  for (const PartRequest& part : parts) {
    if (!names.insert(part.part).second)
      return fail(Code::kInvalidArgument, "part " + part.part + ": named twice");
  }
  if (parts.size() == 1) return place_part(ledger, links, owner, parts.front(), {}, policy);
  Ledger rest = ledger;
  std::vector<Slice> slices;
  for (const Phase phase : {Phase::kRun, Phase::kInit}) {
    for (const PartRequest& part : parts) {
      if (part.phase != phase) continue;
      auto placed = place_part(rest, links, owner, part, slices, policy);
      if (!placed) return fail_in("part " + part.part, placed.error());
      CARVE_TRY_VOID(rest.add(*placed));
      slices.insert(slices.end(), placed->begin(), placed->end());
    }
  }
  return slices;
}

}  // namespace carve
