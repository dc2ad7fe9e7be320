#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

// Tolerant reading of foreign JSON: a member that is missing or has another type reads as empty.
namespace carve::codec::json_read {

namespace json = boost::json;

/// A std::string_view as Boost.JSON's own type.
[[nodiscard]] inline json::string_view json_text(std::string_view text) { return {text.data(), text.size()}; }

/// Errors begin with `what` ("Pod").
///   errors  kInvalidArgument: not JSON, or nested deeper than `depth`
[[nodiscard]] inline Result<json::value> parse(std::string_view text, std::string_view what, std::size_t depth = 64) {
  json::parse_options options;
  options.max_depth = depth;
  json::error_code error;
  auto value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, std::string(what) + ": not JSON: " + error.message());
  return value;
}

[[nodiscard]] inline const json::value* member(const json::value& value, std::string_view key) {
  const auto* object = value.if_object();
  return object == nullptr ? nullptr
                           : object->if_contains(json::string_view(key.data(), key.size()));
}

/// The member at "a.b.c".
[[nodiscard]] inline const json::value* at(const json::value& value, std::string_view path) {
  const json::value* here = &value;
  while (here != nullptr && !path.empty()) {
    const auto dot = path.find('.');
    here = member(*here, path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return here;
}

[[nodiscard]] inline std::string text_of(const json::value* value) {
  const auto* string = value == nullptr ? nullptr : value->if_string();
  return string == nullptr ? std::string() : std::string(string->data(), string->size());
}

[[nodiscard]] inline std::string text(const json::value& value, std::string_view path) {
  return text_of(at(value, path));
}

/// The member of exactly that name, including dots: annotations, labels, resource names.
[[nodiscard]] inline std::string text_named(const json::value* value, std::string_view key) {
  return value == nullptr ? std::string() : text_of(member(*value, key));
}

[[nodiscard]] inline std::int64_t number(const json::value& value, std::string_view path) {
  const auto* found = at(value, path);
  const auto* integer = found == nullptr ? nullptr : found->if_int64();
  return integer == nullptr ? 0 : *integer;
}

[[nodiscard]] inline const json::array& list(const json::value& value, std::string_view path) {
  static const json::array kNone;
  const auto* found = at(value, path);
  const auto* array = found == nullptr ? nullptr : found->if_array();
  return array == nullptr ? kNone : *array;
}

}  // namespace carve::codec::json_read
