#include <boost/json.hpp>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "codec/json_walk.h"

// Text that the walk accepts is JSON and has the same meaning as with the full reader. Text that it does not accept
// contains one of the few constructs that it leaves to that reader.
namespace {

namespace json = boost::json;
using carve::codec::JsonWalk;

void must(bool holds) {
  if (!holds) __builtin_trap();
}

std::optional<json::value> read_whole(std::string_view text, std::size_t depth) {
  json::parse_options options;
  options.max_depth = depth;
  json::error_code error;
  auto value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  return error ? std::nullopt : std::optional(std::move(value));
}

/// The value that begins here; its objects and lists are built with the walk's own steps.
std::optional<json::value> built(JsonWalk& walk) {
  if (walk.next() == '{') {
    json::object object;
    const bool all = walk.object([&](std::string_view name) {
      auto value = built(walk);
      if (value) object[json::string_view(name.data(), name.size())] = std::move(*value);
      return value.has_value();
    });
    return all ? std::optional(json::value(std::move(object))) : std::nullopt;
  }
  if (walk.next() == '[') {
    json::array array;
    const bool all = walk.array([&] {
      auto value = built(walk);
      if (value) array.push_back(std::move(*value));
      return value.has_value();
    });
    return all ? std::optional(json::value(std::move(array))) : std::nullopt;
  }
  JsonWalk before = walk;
  const auto piece = walk.value();
  if (!piece) return std::nullopt;
  auto value = read_whole(*piece, 1);
  must(value && !value->is_structured());
  if (const auto plain = before.plain_text()) {
    must(value->is_string() && value->get_string() == json::string_view(plain->data(), plain->size()));
    must(before.at() == walk.at());
  }
  return value;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// True for the constructs that the walk may leave to the full reader: characters beyond ASCII, surrogates, exponents
/// of more than two digits, and numbers with many digits.
bool may_be_left(std::string_view text) {
  std::size_t digits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (static_cast<unsigned char>(text[i]) >= 0x80) return true;
    if (text.substr(i, 3) == "\\ud" || text.substr(i, 3) == "\\uD") return true;
    digits = is_digit(text[i]) ? digits + 1 : 0;
    if (digits > JsonWalk::kMostDigits) return true;
    const auto power = text.substr(i, 5);
    if (power.size() < 4 || (power[0] != 'e' && power[0] != 'E')) continue;
    const std::size_t at = power[1] == '+' || power[1] == '-' ? 2 : 1;
    if (power.size() < at + 3) continue;
    if (is_digit(power[at]) && is_digit(power[at + 1]) && is_digit(power[at + 2])) return true;
  }
  return false;
}

void look(std::string_view text, std::size_t depth) {
  const auto right = read_whole(text, depth);
  JsonWalk walk(text, depth);
  const auto piece = walk.value();
  const bool takes = piece && walk.over();
  if (takes) must(right.has_value());
  if (right) must(takes || may_be_left(text));
  if (piece) must(read_whole(*piece, depth).has_value());
  JsonWalk again(text, depth);
  const auto value = built(again);
  if (value) must(piece && again.at() >= piece->size());
  if (value && again.over()) must(takes && *value == *right);
  if (piece) return;
  for (int i = 0; i < 2; ++i) must(!walk.value() && !walk.plain_text() && walk.next() == '\0' && !walk.over());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const std::size_t depth : {1U, 3U, 64U}) look(text, depth);
  return 0;
}
