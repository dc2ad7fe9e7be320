#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/model/card.h"
#include "core/model/slice.h"

namespace carve {

/// The demand of one owner's slices on one card: the larger of (the largest init part, the sum of the run parts).
struct Holding {
  Bytes memory;
  CoreShare compute;       // guaranteed
  bool exclusive = false;  // no other owner may have a slice on this card
  bool whole = false;      // the card itself, regardless of its size
  friend bool operator==(const Holding&, const Holding&) = default;
};

/// The holding of these slices, all of one owner on one card.
///   cost    O(slices), no allocation; pure
///   source  Kubernetes: a pod needs max(each init container, sum of containers) of a resource
[[nodiscard]] Holding holding_of(const Slice* begin, const Slice* end);

/// The use of a card at this moment.
struct CardUse {
  Bytes memory;            // set aside; a whole slice sets aside all of the card, even when its size changed
  CoreShare compute;       // guaranteed
  bool exclusive = false;  // one owner holds the card exclusively
  std::uint32_t slices = 0;
  std::uint32_t owners = 0;
  friend bool operator==(const CardUse&, const CardUse&) = default;
};

/// A card, its use, and its slices.
struct CardState {
  Card card;
  CardUse use;
  std::vector<Slice> slices;  // sorted by (owner, part); `use` is their sum
  Bytes beyond = {};          // what the slices hold above their limits now: placement does not promise it

  [[nodiscard]] Bytes free_memory() const { return use.exclusive ? Bytes() : card.memory - use.memory - beyond; }
  [[nodiscard]] CoreShare free_compute() const {
    return use.exclusive ? CoreShare() : card.compute - use.compute;
  }
  friend bool operator==(const CardState&, const CardState&) = default;
};

/// The sum of the slices of each card: the only truth about what is free, for all dialects together. A refused call
/// changes nothing. The identity of a slice is (owner, part, card). A pure value: a copy is a snapshot. Not
/// thread-safe; it has one writer. It does not choose cards; policy/ does.
class Ledger {
 public:
  /// New slices are refused on an unhealthy or closed card, and beyond kMaxSlicesPerCard. Slices that are only read
  /// back after a restart are not.
  enum class Admission : std::uint8_t { kNew, kRestored };

  /// Adds a card, or updates a known one (health, minor, …).
  ///   errors  kInvalidArgument: no UUID, no memory; kFailedPrecondition: its slices hold more than the new size
  Result<void> put_card(Card card);
  /// kNotFound; kFailedPrecondition while the card has slices (a lost card is unhealthy, not removed).
  Result<void> remove_card(const CardId& card);
  /// Records what the card's slices hold above their limits. It is missing from free_memory(), which placement uses. It
  /// is no promise: add() ignores it, because what was decided elsewhere must be booked. Nothing if the card does not
  /// exist.
  void set_beyond(const CardId& card, Bytes bytes);
  /// kNotFound when the card does not exist.
  Result<void> set_health(const CardId& card, Health health);

  /// Books all of `slices`, or none of them.
  ///   errors  kInvalidArgument: illegal slice, or the same one twice; kNotFound: no such card; kAlreadyExists: (owner,
  ///           part, card) is booked already; kUnavailable: unhealthy or closed; kResourceExhausted: it does not fit,
  ///           by memory, compute or number of slices, with the numbers of every card that is too full
  ///   cost    O(slices on the affected cards)
  Result<void> add(const std::vector<Slice>& slices, Admission admission = Admission::kNew);

  /// Frees what (owner, part) holds on all cards and books `slices` (all of that part) instead, or changes nothing.
  /// Errors as add(), without kAlreadyExists.
  Result<void> replace(const Owner& owner, const std::string& part,
                       const std::vector<Slice>& slices, Admission admission = Admission::kNew);

  /// Frees what (owner, part) holds. kNotFound when it holds nothing.
  Result<void> remove(const Owner& owner, const std::string& part);
  /// Frees everything that the owner holds; returns the number of slices that were freed.
  std::size_t remove_owner(const Owner& owner);

  /// All cards, sorted by UUID.
  [[nodiscard]] const std::vector<CardState>& cards() const { return cards_; }
  /// nullptr when the card does not exist; valid until the next put_card or remove_card.
  [[nodiscard]] const CardState* find(const CardId& card) const;
  /// The slices of the owner's part, sorted by card; may be empty.
  [[nodiscard]] std::vector<Slice> slices_of(const Owner& owner, const std::string& part) const;
  [[nodiscard]] std::vector<Slice> slices_of(const Owner& owner) const;
  /// Every slice, sorted by (card, owner, part).
  [[nodiscard]] std::vector<Slice> slices() const;

  /// Recomputes the sums of every card from its slices. An Error (kInternal) names the first card with a sum that
  /// differs or exceeds the card. For doctor and tests: it cannot fail unless this class has a bug.
  [[nodiscard]] Result<void> audit() const;

  friend bool operator==(const Ledger& a, const Ledger& b) { return a.cards_ == b.cards_; }

 private:
  [[nodiscard]] CardState* find_mutable(const CardId& card);
  /// Frees (owner, part) where `owner` is given, then books; all or nothing.
  Result<void> exchange(const Owner* owner, const std::string& part,
                        const std::vector<Slice>& slices, Admission admission);

  std::vector<CardState> cards_;
};

}  // namespace carve
