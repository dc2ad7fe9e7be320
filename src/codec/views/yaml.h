#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// The same document as YAML in block style. Strings are quoted, so that none reads as a number.
///   errors  kInvalidArgument: not JSON
[[nodiscard]] Result<std::string> yaml_of_json(std::string_view json);

}  // namespace carve::codec
