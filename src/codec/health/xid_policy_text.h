#pragma once

#include <string_view>

#include "base/result.h"
#include "core/health/xid_policy.h"

namespace carve::codec {

/// An operator's file: lines that change rows of `base`; # begins a comment. A line is
///
///   xid <codes> <action> [heal-after=<duration>] ["<meaning>"]
///
///   codes    numbers from 1 to 999 and ranges of them, parted by commas ("13,31,96-105"); or `other`: all that
///            no line and no built-in row names
///   action   ignore | application | unhealthy | reset | lost
///   heal-after  1s to 24h, for `unhealthy` only: how long it must be quiet (default 60s)
///   meaning  up to 100 printable characters, shown to people; else the built-in one stays
///
///   in      name: of the file, for messages
///   errors  kInvalidArgument: every line that is wrong, each with line, field, value and what is legal
[[nodiscard]] Result<XidPolicy> parse_xid_policy(std::string_view name, std::string_view text,
                                                 const XidPolicy& base);

}  // namespace carve::codec
