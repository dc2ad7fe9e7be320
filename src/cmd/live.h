#pragma once

#include <functional>
#include <string>

#include "cmd/options.h"

namespace carve::cmd {

/// Shows a picture every `options.every`: on a terminal in its place, a failure included; else one after the other,
/// until a failure. Once with `options.once`. Ends with SIGINT and SIGTERM.
///   picture  the text, or what went wrong
///   returns  an exit code
int show_live(const ViewOptions& options, const std::function<Result<std::string>()>& picture);

}  // namespace carve::cmd
