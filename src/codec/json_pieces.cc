#include "codec/json_pieces.h"

#include <memory>
#include <string>

namespace carve::codec {
namespace {

struct Buffers {
  std::string copy;
  simdjson::dom::parser check;
  simdjson::ondemand::parser pieces;

  /// Makes room for a text of this size.
  bool reserve(std::size_t size) {
    copy.reserve(size + simdjson::SIMDJSON_PADDING);
    if (check.capacity() >= size && pieces.capacity() >= size) return true;
    return check.allocate(size, JsonPieces::kDepth) == simdjson::SUCCESS &&
           pieces.allocate(size, JsonPieces::kDepth) == simdjson::SUCCESS;
  }
};

/// True if the text may contain half of a surrogate pair. simdjson accepts a low surrogate without a high one, which no
/// other parser does.
bool has_surrogate(std::string_view text) {
  for (auto at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at + 2)) {
    const auto escape = text.substr(at + 1, 2);
    if (escape == "ud" || escape == "uD") return true;
  }
  return false;
}

Buffers& buffers() {
  thread_local Buffers of_thread;
  return of_thread;
}

}  // namespace

JsonPieces::JsonPieces(std::string_view text) : text_(text) {
  Buffers& own = buffers();
  if (text.empty() || has_surrogate(text) || !own.reserve(text.size())) return;
  own.copy.assign(text);
  copy_ = own.copy.data();
  // The On-Demand interface does not check what it skips, so the document interface checks everything.
  simdjson::dom::element whole;
  if (own.check.parse(copy_, text.size(), false).get(whole) != simdjson::SUCCESS) return;
  checked_ = own.pieces.iterate(copy_, text.size(), own.copy.capacity()).get(document_) == simdjson::SUCCESS;
}

std::optional<std::string_view> JsonPieces::text(Value& value) {
  simdjson::ondemand::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS) return std::nullopt;
  std::string_view raw;
  if (type == simdjson::ondemand::json_type::object) {
    simdjson::ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS || object.raw_json().get(raw) != simdjson::SUCCESS)
      return std::nullopt;
  } else if (type == simdjson::ondemand::json_type::array) {
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS || array.raw_json().get(raw) != simdjson::SUCCESS)
      return std::nullopt;
  } else {
    raw = value.raw_json_token();
  }
  return value_at(raw);
}

std::optional<std::string_view> JsonPieces::plain_text(Value& value) {
  simdjson::ondemand::json_type type{};
  if (value.type().get(type) != simdjson::SUCCESS || type != simdjson::ondemand::json_type::string) return std::nullopt;
  const auto quoted = value_at(value.raw_json_token());
  const auto found = quoted.substr(1, quoted.size() - 2);
  return found.find('\\') == std::string_view::npos ? std::optional(found) : std::nullopt;
}

std::string_view JsonPieces::value_at(std::string_view up_to_next) const {
  const auto is_white = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  while (!up_to_next.empty() && is_white(up_to_next.back())) up_to_next.remove_suffix(1);
  return piece(up_to_next);
}

std::optional<std::string_view> JsonPieces::content(const char* begin) const {
  const std::string_view rest(begin, text_.size() - static_cast<std::size_t>(begin - copy_));
  const auto end = rest.find('"');
  const auto text = rest.substr(0, end);
  if (end == std::string_view::npos || text.find('\\') != std::string_view::npos) return std::nullopt;
  return text;
}

}  // namespace carve::codec
