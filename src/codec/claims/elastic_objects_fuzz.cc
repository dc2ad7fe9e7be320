#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/claims/elastic_objects.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace carve::codec;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(parse_elastic_class(text));
  if (const auto claim = parse_elastic_claim(text, {})) static_cast<void>(protection_patch(*claim, text, true));
  static_cast<void>(parse_elastic_room(text));
  if (const auto gpu = parse_elastic_gpu(text, {}); gpu && gpu->error.empty()) {
    // A legal object can be written, and what is written is legal.
    static_cast<void>(claim_ref_patch(*gpu, {"s", "k", "u"}));
    static_cast<void>(encode_elastic_gpu(*gpu));
  }
  return 0;
}
