#pragma once

#include <string>

#include "codec/views/explanation.h"

namespace carve::cli {

/// `carve explain`: what the pod asks, where it fits or why nowhere, what would have to change, what it holds.
[[nodiscard]] std::string render_explanation(const codec::Explanation& said);

}  // namespace carve::cli
