#pragma once

#include <functional>
#include <string>

#include "cmd/options.h"

namespace carve::cmd {

/// Prints `picture` every `options.every`. On a terminal each text or error replaces the previous one, arrows and page
/// keys scroll, and q ends. Otherwise the texts follow each other until an error. With `options.once` it prints one
/// text. Without it, SIGINT and SIGTERM end the process immediately with code 0, even while `picture` runs.
///   picture  the text, or the error
///   returns  an exit code
int show_live(const ViewOptions& options, const std::function<Result<std::string>()>& picture);

/// Prints `picture` once. With `watch` it asks every second, in the same way as show_live(). Where the texts follow
/// each other, a text that did not change is not repeated.
int show_watched(bool watch, const std::string& output, const std::function<Result<std::string>()>& picture);

}  // namespace carve::cmd
