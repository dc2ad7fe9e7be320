#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// The same document as YAML in block style; strings are quoted, so that none is taken for a number.
///   errors  kInvalidArgument: it is no JSON
[[nodiscard]] Result<std::string> yaml_of_json(std::string_view json);

}  // namespace carve::codec
