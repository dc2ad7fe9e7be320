#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace carve {

/// What an administrator permits a card to be used for. It decides about new slices; existing slices stay.
enum class CardMode : std::uint8_t {
  kAny,        // fractions and whole-card requests, never at the same time
  kShared,     // only fractions
  kExclusive,  // only whole-card requests
};

/// any, shared or exclusive.
[[nodiscard]] std::string_view to_string(CardMode mode);
/// nullopt for any other word.
[[nodiscard]] std::optional<CardMode> card_mode_from(std::string_view word);
inline constexpr std::string_view kCardModeWords = "any, shared or exclusive";

/// Whether a card in that mode accepts a whole-card request (`whole`), or a request for a fraction.
[[nodiscard]] constexpr bool permits(CardMode mode, bool whole) {
  return mode == CardMode::kAny || (mode == CardMode::kExclusive) == whole;
}

}  // namespace carve
