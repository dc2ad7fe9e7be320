#include "app/cli/table.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace carve::cli {
namespace {

/// Continuation bytes of UTF-8 use no column; every other character of Carve's output uses one.
bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

std::size_t columns_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

/// The first `columns` columns of a line.
std::string cut(std::string_view line, std::size_t columns) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (!begins_character(line[at])) continue;
    if (count == columns) return std::string(line.substr(0, at));
    ++count;
  }
  return std::string(line);
}

}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right,
                    const std::string& indent) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - columns_of(row[i]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), i) != right.end();
      line += (i == 0 ? "" : "  ") + (to_right ? pad + row[i] : row[i] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string bar(double share, int width) {
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * width));
  std::string text;
  for (int i = 0; i < width; ++i) text += i < full ? "█" : "░";
  return text;
}

std::string clipped(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 1) + "…";
}

std::string page_of(const std::string& text, std::size_t rows, std::size_t columns, std::size_t* first) {
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::size_t room = rows > 1 ? rows - 1 : 1;
  const std::size_t most = lines.size() > room ? lines.size() - room : 0;
  *first = std::min(*first, most);
  std::string out;
  for (std::size_t at = *first; at < lines.size() && at < *first + room; ++at) out += cut(lines[at], columns) + "\n";
  if (most == 0) return out;
  const auto shown = std::min(lines.size(), *first + room);
  return out + cut("lines " + std::to_string(*first + 1) + " to " + std::to_string(shown) + " of " +
                       std::to_string(lines.size()) + "; arrows and page keys scroll, q ends",
                   columns);
}

}  // namespace carve::cli
