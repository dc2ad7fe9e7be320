#pragma once

#include <string_view>

namespace carve::codec {

/// The text without blanks at both ends. `blanks`: the characters that count as blank; the default suits a line that
/// was cut at its newline.
[[nodiscard]] inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r") {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Returns the text before the next `separator`; the rest stays in `text`.
[[nodiscard]] inline std::string_view next_piece(std::string_view* text, char separator) {
  const auto end = text->find(separator);
  const auto piece = text->substr(0, end);
  *text = end == std::string_view::npos ? std::string_view() : text->substr(end + 1);
  return piece;
}

}  // namespace carve::codec
