#pragma once

#include <functional>
#include <string>

#include "cmd/options.h"

namespace carve::cmd {

/// Shows a picture every `options.every`: on a terminal in its place, a failure included; else one after the other,
/// until a failure. Once with `options.once`; else SIGINT and SIGTERM end the process at once with code 0, also in the
/// middle of a picture.
///   picture  the text, or what went wrong
///   returns  an exit code
int show_live(const ViewOptions& options, const std::function<Result<std::string>()>& picture);

}  // namespace carve::cmd
