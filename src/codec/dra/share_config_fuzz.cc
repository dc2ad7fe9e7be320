#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "codec/dra/share_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto got = carve::codec::parse_share_config({reinterpret_cast<const char*>(data), size});
  if (!got && got.error().what.empty()) std::abort();  // every refusal has a text
  return 0;
}
