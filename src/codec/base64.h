#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// Standard base64 with padding; white space between is skipped.
///   errors  kInvalidArgument
[[nodiscard]] Result<std::string> decode_base64(std::string_view text);
/// The same way back, without line ends.
[[nodiscard]] std::string encode_base64(std::string_view bytes);

}  // namespace carve::codec
