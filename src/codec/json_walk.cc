#include "codec/json_walk.h"

#include <bit>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/ascii.h"

namespace carve::codec {
namespace {

constexpr std::uint64_t kEach = 0x0101010101010101ULL;
constexpr std::uint64_t kHigh = 0x8080808080808080ULL;

/// The number of bytes, from the lowest of eight, before the first one that ends a plain run of a string: a quote, a
/// backslash, a control character or a non-ASCII byte. A borrow only affects bytes above the first of them.
unsigned plain_bytes(std::uint64_t eight) {
  const auto zero_in = [](std::uint64_t x) { return (x - kEach) & ~x; };
  const std::uint64_t odd = zero_in(eight ^ (kEach * '"')) | zero_in(eight ^ (kEach * '\\')) |
                            ((eight - kEach * 0x20) & ~eight) | eight;
  return static_cast<unsigned>(std::countr_zero(odd & kHigh)) / 8;
}

bool plain(unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; }

/// The number of bytes from `at` before the first one that ends a plain run of a string; all of them if none does.
std::size_t plain_run(std::string_view text, std::size_t at) {
  const std::size_t begin = at;
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i slash = _mm_set1_epi8('\\');
  const __m128i blank = _mm_set1_epi8(' ');
  for (; at + 16 <= text.size(); at += 16) {
    const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + at));
    // As signed bytes, non-ASCII values are also less than a blank.
    const __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(some, quote), _mm_cmpeq_epi8(some, slash));
    const __m128i odd = _mm_or_si128(marks, _mm_cmplt_epi8(some, blank));
    const auto which = static_cast<unsigned>(_mm_movemask_epi8(odd));
    if (which != 0) return at - begin + static_cast<unsigned>(std::countr_zero(which));
  }
#endif
  for (; std::endian::native == std::endian::little && at + 8 <= text.size(); at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, text.data() + at, 8);
    if (const unsigned more = plain_bytes(eight); more < 8) return at - begin + more;
  }
  while (at < text.size() && plain(static_cast<unsigned char>(text[at]))) ++at;
  return at - begin;
}


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
    at_ += plain_run(text_, at_);
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
  // An exponent that exceeds a double is infinity for some parsers and an error for others.
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
