#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "codec/loader_cache.h"

// The cache comes from a container image, and a program of the host reads it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view cache(reinterpret_cast<const char*>(data), size);
  const auto made = carve::codec::with_libraries(cache, {{"libcuda.so.1", "/usr/lib/libcuda.so.1"}});
  if (!made) return 0;
  const auto again = carve::codec::loader_entries(*made);
  if (!again || again->empty()) std::abort();  // a written cache can be read
  return 0;
}
