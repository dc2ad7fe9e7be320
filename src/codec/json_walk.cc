#include "codec/json_walk.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace carve::codec {
namespace {

constexpr std::uint64_t kEach = 0x0101010101010101ULL;
constexpr std::uint64_t kHigh = 0x8080808080808080ULL;

/// How many of eight bytes, from the lowest, stand before the first that ends a string's plain run: a quote, a
/// backslash, a control character, no ASCII. A borrow reaches bytes above the first such alone.
unsigned plain_bytes(std::uint64_t eight) {
  const auto zero_in = [](std::uint64_t x) { return (x - kEach) & ~x; };
  const std::uint64_t odd = zero_in(eight ^ (kEach * '"')) | zero_in(eight ^ (kEach * '\\')) |
                            ((eight - kEach * 0x20) & ~eight) | eight;
  return static_cast<unsigned>(std::countr_zero(odd & kHigh)) / 8;
}

bool plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool JsonWalk::over() {
  (void)next();
  return !failed_ && at_ == text_.size();
}

bool JsonWalk::escape() {
  const std::string_view rest = text_.substr(at_);
  if (rest.size() < 2) return fail();
  if (std::string_view("\"\\/bfnrt").find(rest[1]) != std::string_view::npos) {
    at_ += 2;
    return true;
  }
  if (rest[1] != 'u' || rest.size() < 6) return fail();
  int code = 0;
  for (std::size_t i = 2; i < 6; ++i) {
    const int digit = hex(rest[i]);
    if (digit < 0) return fail();
    code = code * 16 + digit;
  }
  if (code >= 0xd800 && code < 0xe000) return fail();
  at_ += 6;
  return true;
}

bool JsonWalk::string(bool* escapes) {
  if (!symbol('"')) return false;
  while (true) {
    while (std::endian::native == std::endian::little && at_ + 8 <= text_.size()) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, text_.data() + at_, 8);
      const unsigned more = plain_bytes(eight);
      at_ += more;
      if (more < 8) break;
    }
    while (at_ < text_.size() && plain(static_cast<unsigned char>(text_[at_]))) ++at_;
    if (at_ == text_.size()) return fail();
    if (text_[at_] == '"') return ++at_, true;
    if (text_[at_] != '\\' || !escape()) return fail();
    *escapes = true;
  }
}

std::optional<std::string_view> JsonWalk::plain_text() {
  bool escapes = false;
  (void)next();
  const auto begin = at_ + 1;
  if (!string(&escapes) || escapes) {
    fail();
    return std::nullopt;
  }
  return text_.substr(begin, at_ - 1 - begin);
}

std::optional<std::string_view> JsonWalk::value() {
  (void)next();
  const auto begin = at_;
  if (!skip()) return std::nullopt;
  return text_.substr(begin, at_ - begin);
}

bool JsonWalk::digits() {
  const auto begin = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ > begin && at_ - begin <= kMostDigits;
}

bool JsonWalk::number() {
  const auto has = [this](std::string_view any) {
    return at_ < text_.size() && any.find(text_[at_]) != std::string_view::npos;
  };
  if (has("-")) ++at_;
  const bool zero = has("0");
  const auto begin = at_;
  if (!digits() || (zero && at_ > begin + 1)) return fail();
  if (has(".") && (++at_, !digits())) return fail();
  if (!has("eE")) return true;
  ++at_;
  if (has("+-")) ++at_;
  // A power that no double has is one reader's infinity and another's error.
  const auto power = at_;
  return (digits() && at_ - power <= 2) || fail();
}

bool JsonWalk::word(std::string_view wanted) {
  if (text_.substr(at_, wanted.size()) != wanted) return fail();
  at_ += wanted.size();
  return true;
}

bool JsonWalk::skip() {
  bool ignored = false;
  switch (next()) {
    case '{':
      return list('{', '}', [this, &ignored] { return string(&ignored) && symbol(':') && skip(); });
    case '[': return list('[', ']', [this] { return skip(); });
    case '"': return string(&ignored);
    case 't': return word("true");
    case 'f': return word("false");
    case 'n': return word("null");
    default: return !failed_ && number();
  }
}

}  // namespace carve::codec
