#pragma once

#include <string>
#include <vector>

namespace carve::cli {

/// Aligns the columns of a table for a terminal. The first row is the header. `right` lists the indexes of the columns
/// that are aligned to the right. Trailing spaces are removed.
[[nodiscard]] std::string aligned(const std::vector<std::vector<std::string>>& rows,
                                  const std::vector<std::size_t>& right, const std::string& indent);

/// A bar like "████░░░░", `width` characters wide, for a share from 0 to 1.
[[nodiscard]] std::string bar(double share, int width);

/// At most `width` characters of `text`; a shortened text ends with "…".
[[nodiscard]] std::string clipped(const std::string& text, std::size_t width);

/// The part of a text that a terminal of this size shows, beginning with line `*first` (0 is the first one), which is
/// reduced if the text is shorter. Longer lines are cut. If the text does not fit, the last row says which lines are
/// shown, and how to scroll.
[[nodiscard]] std::string page_of(const std::string& text, std::size_t rows, std::size_t columns, std::size_t* first);

}  // namespace carve::cli
