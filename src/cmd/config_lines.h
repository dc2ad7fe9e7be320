#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace carve::cmd {

/// Reads a file of `key = value` lines; # begins a comment. `apply` is called for each.
///   errors  kNotFound, …: the file; kInvalidArgument: every line that is wrong or refused by `apply`, with its number
[[nodiscard]] Result<void> each_setting(
    const std::string& path,
    const std::function<Result<void>(const std::string& key, const std::string& value)>& apply);

}  // namespace carve::cmd
