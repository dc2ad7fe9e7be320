#pragma once

#include <map>
#include <string>
#include <vector>

#include "codec/kubelet/node_pod.h"
#include "codec/node/gpu_object.h"
#include "port/node_slices.h"

namespace carve::node {

/// A claim's namespace and name. ClaimNames has them by UID.
struct ClaimName {
  std::string namespace_name;
  std::string name;
};
using ClaimNames = std::map<std::string, ClaimName>;

/// "n1.gpu-8f0c4a…": the node's name, a dot, the UUID in lower case.
[[nodiscard]] std::string gpu_name(const std::string& node, const CardId& card);

/// One GPU object per card, with the holders of its slices. Pure. Slices of unlisted cards are omitted.
/// O(cards² + holdings × pods).
[[nodiscard]] std::vector<codec::GpuObject> gpu_objects(const std::string& node,
                                                        const GpuInventory& cards,
                                                        const std::vector<HeldSlice>& holdings,
                                                        const std::vector<codec::NodePod>& pods,
                                                        const ClaimNames& claims);

}  // namespace carve::node
