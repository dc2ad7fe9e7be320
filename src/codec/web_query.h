#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

using WebQuery = std::map<std::string, std::string, std::less<>>;

/// A part of a URL without its percent-encoding, appended to `into`. False: an escape is invalid or stands for a
/// control character.
[[nodiscard]] bool url_decoded(std::string_view text, std::string* into);

/// The parameters of a URL's query.
///   errors  kInvalidArgument: a name that is not in `legal`, a name twice, an invalid escape, more than 4096 bytes
[[nodiscard]] Result<WebQuery> parse_web_query(std::string_view text, std::span<const std::string_view> legal);

/// The value of a parameter; empty if it is not given.
[[nodiscard]] std::string text_in(const WebQuery& query, std::string_view name);

/// The number; `otherwise` if the parameter is not given or empty.
///   errors  kInvalidArgument names the parameter and the legal range
[[nodiscard]] Result<std::uint64_t> number_in(const WebQuery& query, std::string_view name, std::uint64_t otherwise,
                                              std::uint64_t least, std::uint64_t most);

}  // namespace carve::codec
