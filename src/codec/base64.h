#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// Decodes standard base64 with padding; white space is skipped.
///   errors  kInvalidArgument
[[nodiscard]] Result<std::string> decode_base64(std::string_view text);
/// Encodes standard base64 with padding, without line breaks.
[[nodiscard]] std::string encode_base64(std::string_view bytes);

}  // namespace carve::codec
