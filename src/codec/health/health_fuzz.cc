// Any bytes as an XID policy and as stored cards: no crash; an accepted value is legal, and stored cards that are
// written and parsed again are equal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "codec/health/known_cards_text.h"
#include "codec/health/xid_policy_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto policy = carve::codec::parse_xid_policy("fuzz", text, carve::built_in_xid_policy())) {
    for (const auto& [xid, row] : policy->rows) {
      if (xid < 1 || xid > carve::kMostXid || row.heal_after < std::chrono::seconds(1)) std::abort();
    }
  }
  if (const auto known = carve::codec::parse_known_cards(text)) {
    const auto again = carve::codec::parse_known_cards(carve::codec::encode_known_cards(*known));
    if (!again || *again != *known) std::abort();
  }
  return 0;
}
