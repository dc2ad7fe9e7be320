#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "codec/dra/claim.h"
#include "codec/dra/resource_slice.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto claim = carve::codec::parse_claim(text); claim && claim->uid.empty()) std::abort();
  const auto slice = carve::codec::parse_slice(text);
  if (!slice) return 0;
  // A parsed object that is written and parsed again is equal: the publisher compares these values.
  const auto again = carve::codec::parse_slice(carve::codec::encode_slice(*slice, "u"));
  if (!again || again->devices != slice->devices || again->generation != slice->generation) std::abort();
  return 0;
}
