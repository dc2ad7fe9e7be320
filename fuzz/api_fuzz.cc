// The agent's socket: decode_request() refuses arbitrary bytes, or returns a request that encodes to the same bytes.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "adapter/api/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto request = carve::api::decode_request({reinterpret_cast<const char*>(data), size});
  if (!request) return 0;
  const std::string bytes = carve::api::encode_request(*request);
  const auto again = carve::api::decode_request(bytes);
  if (!again || carve::api::encode_request(*again) != bytes) std::abort();
  return 0;
}
