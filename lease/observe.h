#pragma once

#include <cstdint>

#include "abi/page.h"
#include "lease/arbiter.h"

namespace carve::lease {

/// Bound of inflight_ns of one account entry and of one slice, because the tenant writes the page.
inline constexpr std::uint64_t kMostInflightNs = 1'000'000'000;

/// Returns the contents of a slice's account page at `now`, all its processes together. Each word is read once and
/// clamped regardless of its value. `last` is the time of the previous step.
///   entries  the number of assigned account entries, from the grant page, because the tenant writes the one in `page`
///   cost   O(entries)
Observation observe(const abi::AccountPage& page, std::uint32_t entries, std::uint64_t last, std::uint64_t now);

}  // namespace carve::lease
