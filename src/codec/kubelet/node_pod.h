#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/record.h"

namespace carve::codec {

/// The kind of our CDI devices.
inline constexpr std::string_view kSliceDeviceKind = "carve.elasticgpu.io/slice";

/// A container's use of a ResourceClaim.
struct PodClaimUse {
  std::string claim;  // the object's name
  std::string container;
  std::string request;  // empty: all of the claim's
  friend bool operator==(const PodClaimUse&, const PodClaimUse&) = default;
};

/// A Pod of this node, what the agent needs of it.
struct NodePod {
  std::string space;
  std::string name;
  std::string uid;
  std::string mirror;  // of a static pod: the UID that the kubelet knows it by
  std::string node;
  std::string record;  // the annotation's text; empty: none
  bool ended = false;  // Succeeded or Failed: none of its containers starts again
  bool pending = false;
  std::vector<PodClaimUse> claims;
  std::vector<std::string> unresolved;  // containers whose runtime found no file for our CDI name
  friend bool operator==(const NodePod&, const NodePod&) = default;
};

/// Tolerant.
///   errors  kInvalidArgument: no JSON, or without name or UID
[[nodiscard]] Result<NodePod> parse_node_pod(std::string_view text);

}  // namespace carve::codec
