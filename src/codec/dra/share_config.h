#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "core/model/classes.h"

namespace carve::codec {

inline constexpr std::string_view kShareConfigVersion = "gpu.elasticgpu.io/v1";
inline constexpr std::string_view kShareConfigKind = "ShareConfig";

/// What a claim or a DeviceClass may say about its slices, in the opaque parameters for our driver:
///   {"apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "fixed", "priorityClass":
///   "online"}
/// Preferences only: how much of which card is the allocation's business.
struct ShareConfig {
  std::optional<ShareClass> share;  // not said: what was said before, at last burst
  std::optional<PriorityClass> priority;
  friend bool operator==(const ShareConfig&, const ShareConfig&) = default;
};

/// Strict: another version or kind, an unknown member and an illegal value are refused, all of them named.
///   errors  kInvalidArgument, kUnimplemented (another version)
///   cost    O(text)
[[nodiscard]] Result<ShareConfig> parse_share_config(std::string_view text);

}  // namespace carve::codec
