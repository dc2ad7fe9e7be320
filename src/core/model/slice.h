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

/// The kind of an owner: a pod, a resource claim, or this machine (`carve run`, `carve slice create`).
enum class OwnerKind : std::uint8_t { kPod, kClaim, kLocal };
[[nodiscard]] std::string_view to_string(OwnerKind kind);  // pod, claim, local
[[nodiscard]] std::optional<OwnerKind> owner_kind_from(std::string_view word);

/// The holder of slices. Identified by UID, never by a name or a size, so that an owner with the same name or an equal
/// request is a different owner.
struct Owner {
  OwnerKind kind = OwnerKind::kLocal;
  std::string uid;
  friend auto operator<=>(const Owner&, const Owner&) = default;
};

/// The largest number of slices on a card: the size of the arbiter's table of a card (lease/arbiter.h, kMaxSlices).
inline constexpr std::uint32_t kMaxSlicesPerCard = 128;

/// What one part of one owner holds of one card. The identity of a slice is (owner, part, card).
struct Slice {
  Owner owner;
  std::string part;  // container or claim request; "main" for `carve run`
  CardId card;
  Bytes memory;            // the limit
  CoreShare compute;       // of this card; a guarantee unless besteffort
  bool exclusive = false;  // no other owner on the card
  bool whole = false;      // the card itself, not a fraction: no limit is enforced
  Phase phase = Phase::kRun;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::string dialect = "native";
  CoreShare ceiling = CoreShare::whole();  // see Request::ceiling

  /// The compute that the ledger sets aside for this slice.
  [[nodiscard]] CoreShare guarantee() const {
    return share == ShareClass::kBestEffort ? CoreShare() : compute;
  }
  friend bool operator==(const Slice&, const Slice&) = default;
};

/// 1 to 253 letters, digits and the characters . _ : / - are legal in owner UIDs, parts, UUIDs and dialects. None of
/// them needs escaping in JSON, in a journal line or in a path inside a folder of Carve, except for "/" and dots in
/// paths.
[[nodiscard]] bool valid_name(std::string_view text);

}  // namespace carve
