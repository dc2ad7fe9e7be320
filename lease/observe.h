#pragma once

#include <cstdint>

#include "abi/page.h"
#include "lease/arbiter.h"

namespace carve::lease {

/// Nothing a single slot says counts for more: the tenant writes it.
inline constexpr std::uint64_t kMostInflightNs = 1'000'000'000;

/// What the account page of a slice says at `now`, all its processes together. Each word is read once and
/// clamped, whatever stands there; `last` is the time of the step before.
///   slots  how many were handed out: by the grant page, as the tenant writes the bound in this one
///   cost   O(slots)
Observation observe(const abi::AccountPage& page, std::uint32_t slots, std::uint64_t last, std::uint64_t now);

}  // namespace carve::lease
