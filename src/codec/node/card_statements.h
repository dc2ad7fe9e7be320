#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/card.h"

namespace carve::codec {

/// What an annotation of a Node states about one card.
struct CardStatement {
  std::string_view card;  // a UUID, or an index in the driver's order
  std::string_view word;
};

/// "0=fixed,GPU-5e3a…=burst" → one statement per item, in order. Refers to `text`. An item without "=" has no word.
[[nodiscard]] std::vector<CardStatement> card_statements(std::string_view text);

/// Whether `name` is the UUID of this card or its index.
[[nodiscard]] bool is_card_called(std::string_view name, const CardId& card, std::size_t index);

}  // namespace carve::codec
