#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace carve::plugins {

/// The interface through which the start was requested. It decides what a person can change.
enum class Plugin : std::uint8_t { kClaim, kSlots };

/// The fix for a refusal. The error's text has the cause. Both are written to the event on the pod and to the Node's
/// condition.
///   out     never empty; without a full stop at its end
[[nodiscard]] std::string_view remedy(Code code, Plugin plugin);

}  // namespace carve::plugins
