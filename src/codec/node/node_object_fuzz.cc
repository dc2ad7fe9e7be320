#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static_cast<void>(carve::codec::parse_gpu_digest(text));
  std::size_t unreadable = 0;
  if (const auto gpu = carve::codec::parse_gpu_object(text, &unreadable)) {
    // A parsed object can be written, and parsing it again gives an equal object.
    static_cast<void>(carve::codec::gpu_status_patch(*gpu));
    static_cast<void>(carve::codec::gpu_spec_patch(*gpu));
  }
  static_cast<void>(carve::codec::label_value(text));
  if (const auto node = carve::codec::parse_node_object(text))
    static_cast<void>(carve::codec::node_conditions_patch({}, *node, "now"));
  return 0;
}
