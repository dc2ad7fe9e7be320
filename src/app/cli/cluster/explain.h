#pragma once

#include <string>

#include "codec/views/explanation.h"

namespace carve::cli {

/// `carve explain`: what the pod requests, the nodes on which it fits or why it fits on none, which smaller request
/// would fit, and the slices that it has.
[[nodiscard]] std::string render_explanation(const codec::Explanation& said);

}  // namespace carve::cli
