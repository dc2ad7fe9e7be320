#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "core/health/known_cards.h"

namespace carve::codec {

inline constexpr int kKnownCardsVersion = 1;
inline constexpr std::size_t kMaxKnownCards = 1024;

/// One JSON object: {"version":1,"boot":…,"driver":…,"cuda":…,"files":{…},"cards":[{"uuid":…,…}]}
[[nodiscard]] std::string encode_known_cards(const KnownCards& cards);

///   errors  kDataLoss: not JSON, a field of another type, a card without UUID or memory, or a card twice;
///           kUnimplemented: another version
[[nodiscard]] Result<KnownCards> parse_known_cards(std::string_view text);

}  // namespace carve::codec
