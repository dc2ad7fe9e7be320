#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace carve::codec {

/// Lines of `key = value`; # begins a comment. `apply` is called for each.
///   errors  kInvalidArgument: every line that is wrong or refused by `apply`, with its number and `source`
[[nodiscard]] Result<void> each_setting(
    const std::string& text, const std::string& source,
    const std::function<Result<void>(const std::string& key, const std::string& value)>& apply);

}  // namespace carve::codec
