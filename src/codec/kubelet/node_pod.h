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
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string mirror;  // for a static pod: the UID by which the kubelet knows it
  std::string node;
  std::string record;  // the annotation's text; empty: none
  bool ended = false;  // Succeeded or Failed: none of its containers starts again
  bool pending = false;
  bool deleting = false;  // a deletionTimestamp is set: the kubelet ends it, and then deletes it from the API server
  std::vector<PodClaimUse> claims;
  // Containers that use an ElasticGPUClaim. They have one slot: admission does not know how many cards it is for.
  std::vector<std::string> by_elastic_claim;
  // For a static pod without slots: the name by which a container requests cards; empty: it requests none, or has
  // slots. Admission does not see static pods, so their file must contain the slots.
  std::string asks_without_slots;
  // The kubelet's message if it rejected the pod because a slot was not available at that moment; empty: it did not.
  std::string slot_rejected;
  std::string started;                  // status.startTime, RFC 3339; for a rejected pod when it was rejected
  std::vector<std::string> unresolved;  // containers for which the runtime found no file of Carve's CDI name
  friend bool operator==(const NodePod&, const NodePod&) = default;
};

/// Tolerant.
///   errors  kInvalidArgument: not JSON, or without name or UID
[[nodiscard]] Result<NodePod> parse_node_pod(std::string_view text);

}  // namespace carve::codec
