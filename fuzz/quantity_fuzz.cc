// Arbitrary bytes as a quantity: no crash, and an accepted quantity can be written and read again as the same amount.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/dialects/run_request.h"
#include "codec/quantity.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = carve::codec::parse_bytes("memory", text)) {
    const auto again = carve::codec::parse_bytes("memory", carve::to_canonical(*bytes));
    if (!again || *again != *bytes || bytes->count() == 0) std::abort();
  }
  if (const auto memory = carve::codec::parse_memory("memory", text)) {
    if (memory->is_percent() && memory->percent() > 100) std::abort();
  }
  if (const auto cores = carve::codec::parse_cores("cores", text)) {
    if (cores->share.hundredths() < 1 || cores->share.hundredths() > 100) std::abort();
  }
  // All words together: a request that results from them is legal.
  carve::codec::RunWords words;
  words.memory = text.substr(0, size / 2);
  words.cores = text.substr(size / 2);
  if (size % 3 == 0) words.cards = text.substr(0, size / 3);
  if (const auto request = carve::codec::request_from(words)) {
    if (!carve::validate(*request).empty()) std::abort();
  }
  return 0;
}
