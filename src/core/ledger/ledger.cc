#include "core/ledger/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/model/record.h"

namespace carve {
namespace {

bool part_before(const Slice& a, const Slice& b) {
  return std::tie(a.owner, a.part) < std::tie(b.owner, b.part);
}

bool same_part(const Slice& a, const Slice& b) { return a.owner == b.owner && a.part == b.part; }

/// The use that results from these slices (sorted by owner) of one card.
CardUse sum_of(const std::vector<Slice>& slices, Bytes card_memory) {
  CardUse use;
  const Slice* const end = slices.data() + slices.size();
  for (const Slice* first = slices.data(); first != end;) {
    const Slice* last = first;
    while (last != end && last->owner == first->owner) ++last;
    const Holding holding = holding_of(first, last);
    use.memory += holding.whole ? card_memory : holding.memory;
    use.compute += holding.compute;
    use.exclusive = use.exclusive || holding.exclusive;
    ++use.owners;
    first = last;
  }
  use.slices = static_cast<std::uint32_t>(slices.size());
  return use;
}

/// A card as it would be after the change.
struct Changed {
  CardState* card;
  CardUse before;  // without the old part
  std::vector<Slice> slices;
  CardUse use;
  bool is_new = true;  // false: read back after a restart; existing slices are not refused because of their number
};

/// Why an exclusive slice conflicts with the other slices on this card; empty: there is no conflict.
std::string exclusive_conflict(const std::vector<Slice>& slices) {
  for (const Slice& alone : slices) {
    if (!alone.exclusive) continue;
    for (const Slice& other : slices) {
      if (same_part(alone, other)) continue;
      if (other.owner != alone.owner || other.phase == alone.phase) {
        return fmt::format("{}/{} needs the card exclusively, but {}/{} is on it too", alone.owner.uid, alone.part,
                           other.owner.uid, other.part);
      }
    }
  }
  return {};
}

/// Why the card cannot become so; empty: it can.
std::string misfit(const Changed& after) {
  const Card& card = after.card->card;
  if (std::string conflict = exclusive_conflict(after.slices); !conflict.empty()) {
    return fmt::format("{}: {}", card.id.str(), conflict);
  }
  if (after.is_new && after.use.slices > kMaxSlicesPerCard && after.use.slices > after.before.slices) {
    return fmt::format("{}: {} slices are on it, a card has at most {}", card.id.str(), after.before.slices,
                       kMaxSlicesPerCard);
  }
  std::string text;
  if (after.use.memory > card.memory) {
    text = human_less(card.memory - after.before.memory, after.use.memory - after.before.memory);
    text.insert(text.find(" <"), " free");
  }
  if (after.use.compute > card.compute) {
    if (!text.empty()) text += "; ";
    text += fmt::format("compute {} free < {}", (card.compute - after.before.compute).hundredths(),
                        (after.use.compute - after.before.compute).hundredths());
  }
  return text.empty() ? text : fmt::format("{}: {}", card.id.str(), text);
}

/// True when validate() would accept a record of this slice alone. It does not build the record, because it runs for
/// every slice of a node whenever something changes on the node.
bool is_legal(const Slice& slice) {
  const bool shared = slice.compute != CoreShare() || slice.share == ShareClass::kBestEffort;
  return slice.memory != Bytes(0) && slice.compute <= slice.ceiling && slice.ceiling <= CoreShare::whole() && shared &&
         slice.ceiling != CoreShare() &&
         (slice.exclusive || !slice.whole) && valid_name(slice.owner.uid) && valid_name(slice.part) &&
         valid_name(slice.card.str()) && valid_name(slice.dialect);
}

Result<void> check_slice(const Slice& slice) {
  if (is_legal(slice)) return {};
  Record alone{0,
               slice.owner,
               {RecordPart{slice.part,
                           slice.phase,
                           slice.exclusive,
                           slice.whole,
                           slice.share,
                           slice.priority,
                           slice.dialect,
                           {RecordCard{slice.card, slice.memory, slice.compute}},
                           slice.ceiling}}};
  return joined(validate(alone));
}

}  // namespace

Holding holding_of(const Slice* begin, const Slice* end) {
  Holding run;
  Holding init;
  for (const Slice* slice = begin; slice != end; ++slice) {
    if (slice->phase == Phase::kInit) {
      init.memory = std::max(init.memory, slice->memory);
      init.compute = std::max(init.compute, slice->guarantee());
    } else {
      run.memory += slice->memory;
      run.compute += slice->guarantee();
    }
    run.exclusive = run.exclusive || slice->exclusive;
    run.whole = run.whole || slice->whole;
  }
  run.memory = std::max(run.memory, init.memory);
  run.compute = std::max(run.compute, init.compute);
  return run;
}

CardState* Ledger::find_mutable(const CardId& card) { return const_cast<CardState*>(find(card)); }

const CardState* Ledger::find(const CardId& card) const {
  const auto at =
      std::lower_bound(cards_.begin(), cards_.end(), card,
                       [](const CardState& state, const CardId& id) { return state.card.id < id; });
  return at != cards_.end() && at->card.id == card ? &*at : nullptr;
}

Result<void> Ledger::put_card(Card card) {
  if (!valid_name(card.id.str())) {
    return fail(Code::kInvalidArgument,
                "card: uuid: 1 to 253 letters, digits and . _ : / - are legal");
  }
  if (card.memory == Bytes(0) || card.compute != CoreShare::whole()) {
    return fail(Code::kInvalidArgument,
                fmt::format("card {}: {} of memory and compute {} are not legal; a card has memory and compute 100",
                            card.id.str(), to_human(card.memory), card.compute.hundredths()));
  }
  CardState* known = find_mutable(card.id);
  if (known == nullptr) {
    CardState state{std::move(card), {}, {}, {}};
    const auto at = std::lower_bound(
        cards_.begin(), cards_.end(), state.card.id,
        [](const CardState& other, const CardId& id) { return other.card.id < id; });
    cards_.insert(at, std::move(state));
    return {};
  }
  const CardUse use = sum_of(known->slices, card.memory);
  if (use.memory > card.memory) {
    return fail(Code::kFailedPrecondition,
                fmt::format("card {}: its new size {} is less than the {} that its slices hold",
                            card.id.str(), to_human(card.memory), to_human(use.memory)));
  }
  known->card = std::move(card);
  known->use = use;
  return {};
}

Result<void> Ledger::remove_card(const CardId& card) {
  const CardState* state = find(card);
  if (state == nullptr) return fail(Code::kNotFound, fmt::format("no card {}", card.str()));
  if (!state->slices.empty()) {
    return fail(Code::kFailedPrecondition,
                fmt::format("card {}: {} slices are still booked on it", card.str(), state->slices.size()));
  }
  cards_.erase(cards_.begin() + (state - cards_.data()));
  return {};
}

void Ledger::set_beyond(const CardId& card, Bytes bytes) {
  if (CardState* state = find_mutable(card); state != nullptr) state->beyond = bytes;
}

Result<void> Ledger::set_health(const CardId& card, Health health) {
  CardState* state = find_mutable(card);
  if (state == nullptr) return fail(Code::kNotFound, fmt::format("no card {}", card.str()));
  state->card.health = std::move(health);
  return {};
}

Result<void> Ledger::add(const std::vector<Slice>& slices, Admission admission) {
  return exchange(nullptr, {}, slices, admission);
}

Result<void> Ledger::replace(const Owner& owner, const std::string& part,
                             const std::vector<Slice>& slices, Admission admission) {
  for (const Slice& slice : slices) {
    if (slice.owner != owner || slice.part != part) {
      return fail(Code::kInvalidArgument,
                  fmt::format("replace: {}/{} cannot be replaced with a slice of {}/{}", owner.uid, part,
                              slice.owner.uid, slice.part));
    }
  }
  return exchange(&owner, part, slices, admission);
}

Result<void> Ledger::exchange(const Owner* owner, const std::string& part,
                              const std::vector<Slice>& slices, Admission admission) {
  // Works on copies of the affected cards; they replace the cards only when all slices fit.
  std::vector<Changed> changed;
  if (owner != nullptr) {
    for (CardState& state : cards_) {
      auto without = state.slices;
      std::erase_if(without, [&](const Slice& s) { return s.owner == *owner && s.part == part; });
      if (without.size() == state.slices.size()) continue;
      const auto use = sum_of(without, state.card.memory);
      changed.push_back({&state, use, std::move(without), use});
    }
  }
  for (const Slice& slice : slices) {
    CARVE_TRY_VOID(check_slice(slice));
    CardState* known = find_mutable(slice.card);
    if (known == nullptr) {
      return fail(Code::kNotFound, fmt::format("no card {}", slice.card.str()));
    }
    if (admission == Admission::kNew && !known->card.health.ok) {
      return fail(Code::kUnavailable,
                  fmt::format("{}: unhealthy: {}", slice.card.str(), known->card.health.reason));
    }
    if (admission == Admission::kNew && !known->card.closed.empty()) {
      return fail(Code::kUnavailable, fmt::format("{}: {}", slice.card.str(), known->card.closed));
    }
    auto at = std::find_if(changed.begin(), changed.end(), [&](const Changed& one) { return one.card == known; });
    if (at == changed.end()) at = changed.insert(at, {known, known->use, known->slices, {}});
    std::vector<Slice>& held = at->slices;
    const auto place = std::lower_bound(held.begin(), held.end(), slice, part_before);
    if (place != held.end() && same_part(*place, slice)) {
      return fail(Code::kAlreadyExists, fmt::format("{}: {}/{} already has a slice on it",
                                                    slice.card.str(), slice.owner.uid, slice.part));
    }
    held.insert(place, slice);
  }
  // In the order of the cards, so that the text lists them in this order.
  std::sort(changed.begin(), changed.end(), [](const Changed& a, const Changed& b) { return a.card < b.card; });
  std::string misfits;
  for (Changed& one : changed) {
    one.use = sum_of(one.slices, one.card->card.memory);
    one.is_new = admission == Admission::kNew;
    const std::string why = misfit(one);
    if (!why.empty()) misfits += (misfits.empty() ? "" : "; ") + why;
  }
  if (!misfits.empty()) return fail(Code::kResourceExhausted, std::move(misfits));
  for (Changed& one : changed) {
    one.card->slices = std::move(one.slices);
    one.card->use = one.use;
  }
  return {};
}

Result<void> Ledger::remove(const Owner& owner, const std::string& part) {
  bool found = false;
  for (CardState& state : cards_) {
    const auto gone = std::erase_if(
        state.slices, [&](const Slice& s) { return s.owner == owner && s.part == part; });
    if (gone == 0) continue;
    found = true;
    state.use = sum_of(state.slices, state.card.memory);
  }
  if (found) return {};
  return fail(Code::kNotFound,
              fmt::format("{} {}/{} holds nothing", to_string(owner.kind), owner.uid, part));
}

std::size_t Ledger::remove_owner(const Owner& owner) {
  std::size_t freed = 0;
  for (CardState& state : cards_) {
    const auto gone = std::erase_if(state.slices, [&](const Slice& s) { return s.owner == owner; });
    if (gone == 0) continue;
    freed += gone;
    state.use = sum_of(state.slices, state.card.memory);
  }
  return freed;
}

std::vector<Slice> Ledger::slices_of(const Owner& owner, const std::string& part) const {
  std::vector<Slice> out;
  for (const CardState& state : cards_) {
    for (const Slice& slice : state.slices) {
      if (slice.owner == owner && slice.part == part) out.push_back(slice);
    }
  }
  return out;
}

std::vector<Slice> Ledger::slices_of(const Owner& owner) const {
  std::vector<Slice> out;
  for (const CardState& state : cards_) {
    for (const Slice& slice : state.slices) {
      if (slice.owner == owner) out.push_back(slice);
    }
  }
  return out;
}

std::vector<Slice> Ledger::slices() const {
  std::vector<Slice> out;
  for (const CardState& state : cards_) {
    out.insert(out.end(), state.slices.begin(), state.slices.end());
  }
  return out;
}

Result<void> Ledger::audit() const {
  for (const CardState& state : cards_) {
    const CardUse again = sum_of(state.slices, state.card.memory);
    if (!(again == state.use)) {
      return fail(Code::kInternal,
                  fmt::format("card {}: {} and compute {} are booked, but its slices hold {} and {}",
                              state.card.id.str(), to_human(state.use.memory),
                              state.use.compute.hundredths(), to_human(again.memory),
                              again.compute.hundredths()));
    }
    if (again.memory > state.card.memory || again.compute > state.card.compute ||
        !exclusive_conflict(state.slices).empty()) {
      return fail(Code::kInternal,
                  fmt::format("card {}: its slices hold more than it has", state.card.id.str()));
    }
  }
  return {};
}

}  // namespace carve
