#pragma once

#include <string>
#include <vector>

namespace carve::cli {

/// Columns that line up, for a terminal: the first row is the head. Columns listed in `right` (by index) are
/// aligned to the right. Trailing spaces are cut.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows,
                                  const std::vector<std::size_t>& right, const std::string& indent);

/// "████░░░░" of `width` cells for a share of 0..1.
[[nodiscard]] std::string bar(double share, int width);

/// At most `width` characters, "…" at the end when cut.
[[nodiscard]] std::string clipped(const std::string& text, std::size_t width);

}  // namespace carve::cli
