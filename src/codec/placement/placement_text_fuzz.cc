#include <cstddef>
#include <cstdint>
#include <string_view>

#include "codec/placement/placement_text.h"

// For any file or annotation: rules or an error, and rules that are written and parsed again are equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  using namespace carve::codec;
  if (const auto choice = parse_policy_choice(text)) {
    const auto again = parse_policy_choice(to_text(*choice));
    if (!again || *again != *choice) __builtin_trap();
  }
  if (const auto rules = parse_placement_rules(text)) {
    const auto again = parse_placement_rules(to_text(*rules));
    if (!again || *again != *rules) __builtin_trap();
  }
  return 0;
}
