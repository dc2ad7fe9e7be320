#include "codec/web_query.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace carve::codec {
namespace {

constexpr std::size_t kLongest = 4096;
constexpr std::size_t kShown = 64;  // characters of a wrong text in an error

}  // namespace

bool url_decoded(std::string_view text, std::string* into) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at] == '+' ? ' ' : text[at];
    if (c == '%') {
      if (text.size() - at < 3) return false;
      unsigned value = 0;
      const char* begin = text.data() + at + 1;
      const auto [end, wrong] = std::from_chars(begin, begin + 2, value, 16);
      if (wrong != std::errc() || end != begin + 2) return false;
      c = static_cast<char>(value);
      at += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
    *into += c;
  }
  return true;
}

Result<WebQuery> parse_web_query(std::string_view text, std::span<const std::string_view> legal) {
  if (text.size() > kLongest) return fail(Code::kInvalidArgument, "the query is longer than 4096 bytes");
  WebQuery query;
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const auto pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto equals = std::min(pair.find('='), pair.size());
    std::string name;
    std::string value;
    if (!url_decoded(pair.substr(0, equals), &name) ||
        !url_decoded(pair.substr(std::min(equals + 1, pair.size())), &value)) {
      return fail(Code::kInvalidArgument, "the query contains an invalid escape or a control character");
    }
    if (std::find(legal.begin(), legal.end(), name) == legal.end()) {
      std::string names;
      for (const auto one : legal) names += (names.empty() ? "" : ", ") + std::string(one);
      return fail(Code::kInvalidArgument, "\"" + name.substr(0, kShown) + "\" is not a parameter of this path; legal " +
                                              (names.empty() ? "is none" : "are " + names));
    }
    if (query.count(name) != 0) return fail(Code::kInvalidArgument, name + ": it is given twice");
    query.emplace(std::move(name), std::move(value));
  }
  return query;
}

std::string text_in(const WebQuery& query, std::string_view name) {
  const auto found = query.find(name);
  return found == query.end() ? std::string() : found->second;
}

Result<std::uint64_t> number_in(const WebQuery& query, std::string_view name, std::uint64_t otherwise,
                                std::uint64_t least, std::uint64_t most) {
  const auto text = text_in(query, name);
  if (text.empty()) return otherwise;
  std::uint64_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return fail(Code::kInvalidArgument, std::string(name) + ": \"" + text.substr(0, kShown) +
                                            "\" is not a number from " + std::to_string(least) + " to " +
                                            std::to_string(most));
  }
  return value;
}

}  // namespace carve::codec
