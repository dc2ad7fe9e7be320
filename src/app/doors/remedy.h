#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace carve::doors {

/// Through which door it came: what a person can change is another thing there.
enum class Door : std::uint8_t { kClaim, kSlots };

/// The remedy of a refusal, in a person's words; the cause is in the error already. Both go into the event on the pod
/// and into the Node's condition.
///   out     never empty; no full stop at its end
[[nodiscard]] std::string_view remedy(Code code, Door door);

}  // namespace carve::doors
