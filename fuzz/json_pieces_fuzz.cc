#include "codec/json_pieces.h"

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// If pieces of a text are found, the text is JSON, and its pieces have the same meaning as with the complete reader.
namespace {

namespace json = boost::json;
using carve::codec::JsonPieces;

void must(bool holds) {
  if (!holds) __builtin_trap();
}

std::optional<json::value> read_whole(std::string_view text) {
  json::parse_options options;
  options.max_depth = JsonPieces::kDepth;
  json::error_code error;
  auto value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  return error ? std::nullopt : std::optional(std::move(value));
}

std::optional<json::value> built(JsonPieces& pieces, JsonPieces::Value value);

/// A member's value, built with the steps of JsonPieces as far as it is nested.
std::optional<json::value> built(JsonPieces& pieces, JsonPieces::Value value) {
  simdjson::ondemand::json_type type{};
  must(value.type().get(type) == simdjson::SUCCESS);
  if (type == simdjson::ondemand::json_type::object) {
    json::object object;
    std::string_view whole;
    const bool all = pieces.object(value, &whole, [&](std::string_view name, JsonPieces::Value inner) {
      auto one = built(pieces, inner);
      if (one) object[json::string_view(name.data(), name.size())] = std::move(*one);
      return one.has_value();
    });
    if (!all) return std::nullopt;
    must(read_whole(whole) == json::value(object));
    return object;
  }
  if (type == simdjson::ondemand::json_type::array) {
    json::array array;
    const bool all = pieces.array(value, [&](JsonPieces::Value inner) {
      auto one = built(pieces, inner);
      if (one) array.push_back(std::move(*one));
      return one.has_value();
    });
    return all ? std::optional(json::value(std::move(array))) : std::nullopt;
  }
  if (type == simdjson::ondemand::json_type::string) {
    const auto plain = pieces.plain_text(value);
    if (!plain) return std::nullopt;  // with escapes; the pass over whole texts compares it
    return json::string(json::string_view(plain->data(), plain->size()));
  }
  const auto piece = pieces.text(value);
  must(piece.has_value());
  return read_whole(*piece);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto right = read_whole(text);
  JsonPieces first(text);
  json::object texts;
  const bool takes = first.object([&](std::string_view name, JsonPieces::Value value) {
    const auto piece = first.text(value);
    must(piece && piece->data() >= text.data() && piece->data() + piece->size() <= text.data() + text.size());
    auto one = read_whole(*piece);
    must(one.has_value());
    texts[json::string_view(name.data(), name.size())] = std::move(*one);
    return true;
  });
  if (takes) must(right && *right == json::value(texts));
  JsonPieces second(text);
  json::object all;
  const bool whole = second.object([&](std::string_view name, JsonPieces::Value value) {
    auto one = built(second, value);
    if (one) all[json::string_view(name.data(), name.size())] = std::move(*one);
    return one.has_value();
  });
  if (whole) must(takes && *right == json::value(all));
  return 0;
}
