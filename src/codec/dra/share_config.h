#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "core/model/classes.h"

namespace carve::codec {

inline constexpr std::string_view kShareConfigVersion = "gpu.elasticgpu.io/v1";
inline constexpr std::string_view kShareConfigKind = "ShareConfig";

/// What a claim or a DeviceClass may set for its slices, in the opaque parameters of Carve's driver:
///   {"apiVersion": "gpu.elasticgpu.io/v1", "kind": "ShareConfig", "shareClass": "burst", "coreLimit": 60,
///    "priorityClass": "online"}
/// Preferences only: the allocation decides how much of which card.
struct ShareConfig {
  std::optional<ShareClass> share;  // not set: the earlier configuration applies, and finally burst
  std::optional<PriorityClass> priority;
  std::optional<CoreShare> core_limit;  // see Request::ceiling; 1 to 100 hundredths of a device
  friend bool operator==(const ShareConfig&, const ShareConfig&) = default;
};

/// Strict: another version or kind, unknown members and illegal values are refused; the error names all of them.
///   errors  kInvalidArgument, kUnimplemented (another version)
///   cost    O(text)
[[nodiscard]] Result<ShareConfig> parse_share_config(std::string_view text);

}  // namespace carve::codec
