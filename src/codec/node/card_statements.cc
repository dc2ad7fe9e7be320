#include "codec/node/card_statements.h"

#include <algorithm>
#include <charconv>

namespace carve::codec {

std::vector<CardStatement> card_statements(std::string_view text) {
  std::vector<CardStatement> all;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const auto sign = item.find('=');
    all.push_back({item.substr(0, sign), sign == std::string_view::npos ? std::string_view() : item.substr(sign + 1)});
  }
  return all;
}

bool is_card_called(std::string_view name, const CardId& card, std::size_t index) {
  if (name == card.str()) return true;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() && number == index;
}

}  // namespace carve::codec
