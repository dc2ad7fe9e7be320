#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"
#include "core/model/card.h"
#include "core/model/classes.h"

namespace carve {

/// Where an owner lives: a pod, a resource claim, or this machine (`carve run`, `carve slice
/// create`).
enum class OwnerKind : std::uint8_t { kPod, kClaim, kLocal };
[[nodiscard]] std::string_view to_string(OwnerKind kind);  // pod, claim, local
[[nodiscard]] std::optional<OwnerKind> owner_kind_from(std::string_view word);

/// Who holds: never a name and never a size, so that a namesake or an equal request is somebody
/// else.
struct Owner {
  OwnerKind kind = OwnerKind::kLocal;
  std::string uid;
  friend auto operator<=>(const Owner&, const Owner&) = default;
};

/// A card has at most so many slices: the arbiter's table of a card (lease/arbiter.h, kMaxSlices).
inline constexpr std::uint32_t kMaxSlicesPerCard = 128;

/// What one part of one owner holds of one card. Identity is (owner, part, card).
struct Slice {
  Owner owner;
  std::string part;  // container or claim request; "main" for `carve run`
  CardId card;
  Bytes memory;            // the limit
  CoreShare compute;       // of this card; a guarantee unless besteffort
  bool exclusive = false;  // nobody else on the card
  bool whole = false;      // the card itself, not a fraction: no limit is enforced
  Phase phase = Phase::kRun;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::string dialect = "native";

  /// The compute that the ledger sets aside for this slice.
  [[nodiscard]] CoreShare guarantee() const {
    return share == ShareClass::kBestEffort ? CoreShare() : compute;
  }
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Letters, digits and . _ : / - ; 1 to 253 of them: what owner UIDs, parts, UUIDs and dialects
/// consist of. Nothing in that set needs escaping in JSON, in a journal line or in a path below a
/// folder of ours, "/" and dots aside.
[[nodiscard]] bool valid_name(std::string_view text);

}  // namespace carve
