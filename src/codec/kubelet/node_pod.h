#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/record.h"

namespace carve::codec {

/// The kind of Carve's CDI devices.
inline constexpr std::string_view kSliceDeviceKind = "carve.elasticgpu.io/slice";

/// The use of a ResourceClaim by a container.
struct PodClaimUse {
  std::string claim;  // the object's name
  std::string container;
  std::string request;  // empty: all requests of the claim
  friend bool operator==(const PodClaimUse&, const PodClaimUse&) = default;
};

/// The parts of a Pod of this node that the agent needs.
struct NodePod {
  std::string space;
  std::string name;
  std::string uid;
  std::string mirror;  // for a static pod: the UID by which the kubelet knows it
  std::string node;
  std::string record;  // the annotation's text; empty: none
  bool ended = false;  // Succeeded or Failed: none of its containers starts again
  bool pending = false;
  std::vector<PodClaimUse> claims;
  std::vector<std::string> unresolved;  // containers whose runtime found no file for Carve's CDI name
  friend bool operator==(const NodePod&, const NodePod&) = default;
};

/// Tolerant.
///   errors  kInvalidArgument: not JSON, or without name or UID
[[nodiscard]] Result<NodePod> parse_node_pod(std::string_view text);

}  // namespace carve::codec
