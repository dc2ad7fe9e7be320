#include "codec/base64.h"

#include <array>
#include <cstdint>

namespace carve::codec {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

Result<std::string> decode_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int have = 0;
  int padding = 0;
  for (const char c : text) {
    if (is_space(c)) continue;
    if (c == '=') {
      ++padding;
    } else {
      const int value = base64_value(c);
      if (value < 0 || padding > 0) return fail(Code::kInvalidArgument, "expected base64");
      bits = bits << 6U | static_cast<std::uint32_t>(value);
    }
    if (++have < 4) continue;
    if (padding > 2) return fail(Code::kInvalidArgument, "expected base64");
    bits <<= 6U * static_cast<unsigned>(padding);
    const std::array<char, 3> bytes{static_cast<char>(bits >> 16U & 255U), static_cast<char>(bits >> 8U & 255U),
                                    static_cast<char>(bits & 255U)};
    out.append(bytes.data(), 3 - static_cast<std::size_t>(padding));
    bits = 0;
    have = 0;
  }
  if (have != 0) return fail(Code::kInvalidArgument, "expected base64: truncated");
  return out;
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::string_view group = bytes.substr(at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8U | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) out += i <= group.size() ? kAlphabet[bits >> (18U - 6U * i) & 63U] : '=';
  }
  return out;
}

}  // namespace carve::codec
