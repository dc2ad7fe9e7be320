#include "core/policy/place_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/policy/refusals.h"

namespace carve {
namespace {

std::vector<Slice> slices_of_part(const Owner& owner, const PartRequest& part,
                                  const std::vector<PlacedCard>& placed) {
  std::vector<Slice> slices = slices_for(owner, part.part, part.request, placed);
  for (Slice& slice : slices) slice.phase = part.phase;
  return slices;
}

/// The owner's first `count` cards in spec order; fewer when it has fewer.
std::vector<CardId> first_cards(const std::vector<Slice>& slices, std::size_t count) {
  std::vector<CardId> cards;
  for (const Slice& slice : slices) {
    if (cards.size() == count) break;
    if (std::find(cards.begin(), cards.end(), slice.card) == cards.end())
      cards.push_back(slice.card);
  }
  return cards;
}

/// Places an init part on the owner's own cards, which the run parts use after it. The ledger checks whether the larger
/// of both fits.
Result<std::vector<Slice>> on_own_cards(const Ledger& ledger, const Owner& owner,
                                        const PartRequest& part, const std::vector<CardId>& cards) {
  std::vector<PlacedCard> placed;
  for (const CardId& card : cards) {
    const CardState& state = *ledger.find(card);
    if (!model_matches(state.card.model, part.request.constraints.model)) {
      return fail(Code::kFailedPrecondition, card.str() + ": model is not " + part.request.constraints.model);
    }
    placed.push_back(placed_on(state, part.request));
  }
  auto slices = slices_of_part(owner, part, placed);
  Ledger tried = ledger;
  CARVE_TRY_VOID(tried.add(slices));
  return slices;
}

/// One request for all parts of a group.
///   errors  kInvalidArgument: the parts cannot be combined
Result<Request> sum_of(const std::vector<const PartRequest*>& group) {
  Request all = group.front()->request;
  std::array<Bytes, 2> memory{};  // by phase: the sum, the largest
  std::array<std::uint32_t, 2> compute{};
  for (const PartRequest* part : group) {
    CARVE_TRY_VOID(joined(validate(part->request)));
    if (part->request.count != all.count || part->request.memory.is_percent() ||
        part->request.whole) {
      return fail(
          Code::kInvalidArgument,
          "part " + part->part +
              ": parts on the same cards must request memory in bytes and the same number of cards");
    }
    if (part->request.compute.is_tflops()) {
      if (group.size() == 1) return all;
      return fail(Code::kInvalidArgument,
                  "part " + part->part + ": parts on the same cards must request compute in hundredths of a card");
    }
    const Bytes bytes = part->request.memory.bytes();
    const std::uint32_t cores = part->request.compute.share().hundredths();
    if (part->phase == Phase::kInit) {
      memory[1] = std::max(memory[1], bytes);
      compute[1] = std::max(compute[1], cores);
    } else {
      memory[0] += bytes;
      compute[0] += cores;
    }
  }
  all.memory = MemoryAsk::of(std::max(memory[0], memory[1]));
  const std::uint32_t cores = std::max(compute[0], compute[1]);
  if (cores > 100) {
    return fail(Code::kFailedPrecondition,
                fmt::format("together they request compute {}; a card has 100", cores));
  }
  all.compute = CoreShare(cores);
  return all;
}

std::vector<const PartRequest*> group_of(const std::vector<PartRequest>& parts,
                                         const std::string& word) {
  std::vector<const PartRequest*> group;
  for (const PartRequest& part : parts) {
    if (part.together == word) group.push_back(&part);
  }
  return group;
}

/// Places all parts of a group on the cards that place() finds for the combined request.
Result<std::vector<Slice>> place_group(const Ledger& ledger, const LinkMatrix& links,
                                       const Owner& owner,
                                       const std::vector<const PartRequest*>& group,
                                       const PolicyRow& policy) {
  CARVE_TRY(const Request all, sum_of(group));
  CARVE_TRY(const auto placed, place(ledger, links, all, policy));
  std::vector<Slice> slices;
  for (const PartRequest* part : group) {
    std::vector<PlacedCard> own;
    for (const PlacedCard& card : placed) own.push_back(placed_on(*ledger.find(card.card), part->request));
    const auto of_part = slices_of_part(owner, *part, own);
    slices.insert(slices.end(), of_part.begin(), of_part.end());
  }
  return slices;
}

std::string names_of(const std::vector<const PartRequest*>& group) {
  std::string names;
  for (const PartRequest* part : group) names += (names.empty() ? "" : ", ") + part->part;
  return group.size() == 1 ? "part " + names : "parts " + names + " on the same cards";
}

/// Sorts run parts before init parts, each in spec order: the first cards of a pod are counted in this order.
void sort_as_written(const std::vector<PartRequest>& parts, std::vector<Slice>* slices) {
  const auto place_of = [&](const Slice& slice) {
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const PartRequest& part) {
      return part.part == slice.part;
    });
    return std::pair(slice.phase, found - parts.begin());
  };
  std::stable_sort(slices->begin(), slices->end(),
                   [&](const Slice& a, const Slice& b) { return place_of(a) < place_of(b); });
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

/// The number of cards that the parts request together, when all of them request whole cards of the same kind; else 0.
std::uint32_t whole_cards_of(const std::vector<PartRequest>& parts) {
  std::uint32_t beside = 0;
  std::uint32_t before = 0;
  for (const PartRequest& part : parts) {
    if (!part.request.whole || part.request.constraints != parts.front().request.constraints) return 0;
    if (part.phase == Phase::kInit) {
      before = std::max(before, part.request.count);
    } else {
      beside += part.request.count;
    }
  }
  return std::max(beside, before);
}

/// Why there is no room for the pod. Where whole cards are too few, the text counts the cards of all parts. The error
/// of the last part alone would mislead: the cards that it reports as held may be held by the pod's own earlier parts.
Error no_room(const Ledger& ledger, const std::vector<PartRequest>& parts, const std::string& names, Error why) {
  why.what = names + ": " + why.what;
  const std::uint32_t wanted = whole_cards_of(parts);
  if (wanted == 0) return why;
  const Request& request = parts.front().request;
  std::vector<RefusedCard> refused;
  std::size_t possible = ledger.cards().size();
  for (const CardState& card : ledger.cards()) {
    const Offer offer = offer_of(card, request);
    const auto refusal = refusal_of(card, request, offer);
    if (!refusal) continue;
    refused.push_back({&card, offer, *refusal});
    possible -= is_final(*refusal) ? 1 : 0;
  }
  const std::size_t free = ledger.cards().size() - refused.size();
  if (free >= wanted) return why;
  return {possible < wanted ? Code::kFailedPrecondition : Code::kResourceExhausted,
          fmt::format("needs {} whole cards, {} {} free{}{}", wanted, free, free == 1 ? "is" : "are",
                      refused.empty() ? "" : ": ", explain(request, refused))};
}

/// Parts that are placed by one call: a part, or all parts of a group.
struct Unit {
  std::vector<const PartRequest*> parts;
  bool group = false;
  [[nodiscard]] bool before() const { return !group && parts.front()->phase == Phase::kInit; }
  [[nodiscard]] std::string name() const { return group ? names_of(parts) : "part " + parts.front()->part; }
};

/// The units in spec order; init parts without a group follow the others, because they use their cards.
std::vector<Unit> units_of(const std::vector<PartRequest>& parts) {
  std::vector<Unit> units;
  std::set<std::string> grouped;
  for (const PartRequest& part : parts) {
    if (part.together.empty()) {
      units.push_back({{&part}, false});
    } else if (grouped.insert(part.together).second) {
      units.push_back({group_of(parts, part.together), true});
    }
  }
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.before() < b.before(); });
  return units;
}

/// Chooses cards for all parts of one owner, unit by unit.
class PodPlacement {
 public:
  PodPlacement(const Ledger& ledger, const LinkMatrix& links, const Owner& owner,
               const std::vector<PartRequest>& parts, const PolicyRow& policy)
      : ledger_(ledger), links_(links), owner_(owner), parts_(parts), policy_(policy), units_(units_of(parts)) {}

  /// Places the units in spec order. If that fails, tries other orders, then other cards: a unit that could use several
  /// cards may have taken the only one that a later unit can use.
  [[nodiscard]] Result<std::vector<Slice>> place() const {
    std::vector<std::size_t> order(units_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    auto first = in_order(order);
    const auto beside = static_cast<std::size_t>(
        std::count_if(units_.begin(), units_.end(), [](const Unit& unit) { return !unit.before(); }));
    if (first || beside > kMostReordered || first.error().code == Code::kInvalidArgument || !each_fits_alone())
      return first;
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(beside);
    while (std::next_permutation(order.begin(), end)) {
      if (auto placed = in_order(order)) return placed;
    }
    std::size_t tries = kMostTries;
    if (auto placed = avoiding(ledger_, 0, {}, {}, &tries)) return std::move(*placed);
    return first;
  }

 private:
  static constexpr std::size_t kMostReordered = 4;  // 24 orders
  static constexpr std::size_t kMostTries = 64;     // enough for every two parts on four cards

  [[nodiscard]] Result<std::vector<Slice>> place_unit(const Ledger& rest, const Unit& unit,
                                                      const std::vector<Slice>& own) const {
    if (unit.group) return place_group(rest, links_, owner_, unit.parts, policy_);
    return place_part(rest, links_, owner_, *unit.parts.front(), own, policy_);
  }

  [[nodiscard]] Result<std::vector<Slice>> in_order(const std::vector<std::size_t>& order) const {
    Ledger rest = ledger_;
    std::vector<Slice> slices;
    for (const std::size_t at : order) {
      const Unit& unit = units_[at];
      if (unit.before()) sort_as_written(parts_, &slices);
      auto placed = place_unit(rest, unit, slices);
      if (!placed) return tl::unexpected(no_room(ledger_, parts_, unit.name(), placed.error()));
      CARVE_TRY_VOID(rest.add(*placed));
      slices.insert(slices.end(), placed->begin(), placed->end());
    }
    sort_as_written(parts_, &slices);
    return slices;
  }

  /// Places the units from `at` on, the first of them without the cards `avoided`. If the others do not fit then, it
  /// avoids one more of the cards of the first: another choice lacks at least one of them.
  ///   tries   how many units may still be placed; the search ends at 0
  [[nodiscard]] std::optional<std::vector<Slice>> avoiding(const Ledger& rest, std::size_t at,
                                                           const std::set<CardId>& avoided, std::vector<Slice> slices,
                                                           std::size_t* tries) const {
    if (at == units_.size()) {
      sort_as_written(parts_, &slices);
      return slices;
    }
    if (*tries == 0) return std::nullopt;
    --*tries;
    std::vector<PartRequest> parts;
    for (const PartRequest* part : units_[at].parts) parts.push_back(without(*part, avoided));
    Unit unit{{}, units_[at].group};
    for (const PartRequest& part : parts) unit.parts.push_back(&part);
    if (unit.before()) sort_as_written(parts_, &slices);
    const auto placed = place_unit(rest, unit, slices);
    if (!placed) return std::nullopt;
    Ledger with = rest;
    if (!with.add(*placed)) return std::nullopt;
    auto all = slices;
    all.insert(all.end(), placed->begin(), placed->end());
    if (auto found = avoiding(with, at + 1, {}, std::move(all), tries)) return found;
    std::set<CardId> cards;
    for (const Slice& slice : *placed) cards.insert(slice.card);
    for (const CardId& card : cards) {
      auto more = avoided;
      more.insert(card);
      if (auto found = avoiding(rest, at, more, slices, tries)) return found;
    }
    return std::nullopt;
  }

  /// The part, on other cards than these.
  [[nodiscard]] PartRequest without(PartRequest part, const std::set<CardId>& avoided) const {
    if (avoided.empty()) return part;
    std::vector<CardId> rest;
    for (const CardState& card : ledger_.cards()) {
      const auto& named = part.request.constraints.cards;
      const bool may = named.empty() || std::find(named.begin(), named.end(), card.card.id) != named.end();
      if (may && !avoided.contains(card.card.id)) rest.push_back(card.card.id);
    }
    if (rest.empty()) rest.emplace_back();  // an empty list would allow every card
    part.request.constraints.cards = std::move(rest);
    return part;
  }

  [[nodiscard]] bool each_fits_alone() const {
    return std::all_of(units_.begin(), units_.end(),
                       [&](const Unit& unit) { return place_unit(ledger_, unit, {}).has_value(); });
  }

  const Ledger& ledger_;
  const LinkMatrix& links_;
  const Owner& owner_;
  const std::vector<PartRequest>& parts_;
  const PolicyRow& policy_;
  std::vector<Unit> units_;
};

}  // namespace

Result<std::vector<Slice>> place_pod(const Ledger& ledger, const LinkMatrix& links,
                                     const Owner& owner, const std::vector<PartRequest>& parts,
                                     const PolicyRow& policy) {
  if (parts.empty()) return fail(Code::kInvalidArgument, "nothing is requested");
  std::set<std::string> names;
  for (const PartRequest& part : parts) {
    if (!names.insert(part.part).second)
      return fail(Code::kInvalidArgument, "part " + part.part + ": named twice");
  }
  if (parts.size() == 1) return place_part(ledger, links, owner, parts.front(), {}, policy);
  return PodPlacement(ledger, links, owner, parts, policy).place();
}

}  // namespace carve
