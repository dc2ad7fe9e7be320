#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "codec/keeper/words.h"

// An accepted message that is written and parsed again is equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  if (const auto word = carve::codec::decode_keeper_word(packet)) {
    const auto again = carve::codec::decode_keeper_word(carve::codec::encode(*word));
    if (!again || *again != *word) std::abort();
  }
  if (const auto word = carve::codec::decode_agent_word(packet)) {
    const auto again = carve::codec::decode_agent_word(carve::codec::encode(*word));
    if (!again || *again != *word) std::abort();
  }
  return 0;
}
