#pragma once

#include <string_view>

#include "base/result.h"
#include "core/health/xid_policy.h"

namespace carve::codec {

/// An operator's file: lines that replace rows of `base`; # begins a comment. A line is
///
///   xid <codes> <action> [heal-after=<duration>] ["<meaning>"]
///
///   codes    numbers from 1 to 999 and ranges of them, separated by commas ("13,31,96-105"); or `other`: all codes
///            without a line and without a built-in row
///   action   ignore | application | unhealthy | reset | lost
///   heal-after  1s to 24h, for `unhealthy` only: the quiet time after which the card recovers (default 60s)
///   meaning  up to 100 printable characters, shown to users; without it the built-in meaning stays
///
///   in      name: the file's name, for messages
///   errors  kInvalidArgument: all faulty lines, each with line, field, value and what is legal
[[nodiscard]] Result<XidPolicy> parse_xid_policy(std::string_view name, std::string_view text,
                                                 const XidPolicy& base);

}  // namespace carve::codec
