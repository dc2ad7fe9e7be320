#include <array>

#include "codec/journal/journal_text.h"

namespace carve::codec {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78;  // RFC 3720, appendix B.4

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest & 1) != 0 ? (rest >> 1) ^ kReflectedPolynomial : rest >> 1;
    }
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  }
  return crc ^ 0xFFFFFFFF;
}

}  // namespace carve::codec
