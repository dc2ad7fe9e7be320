// Arbitrary bytes as a record: no crash, and an accepted record is legal and is written back to the same bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/record.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto record = carve::codec::decode_record(text)) {
    if (!carve::validate(*record).empty()) std::abort();
    const auto again = carve::codec::encode_record(*record);
    if (!again || *again != text) std::abort();
  }
  return 0;
}
