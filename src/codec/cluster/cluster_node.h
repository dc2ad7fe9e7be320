#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/node/card_modes.h"

namespace carve::codec {

/// The parts of a Node that control needs.
struct ClusterNode {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string address = {};  // its InternalIP, by which the cluster reaches it; empty: not reported
  std::uint64_t slots = 0;  // allocatable elasticgpu.io/slot
  bool leaving = false;     // its agent reports that it is about to end (kAgentLeaving)
  std::vector<std::string> of_others = {};  // names that another device plugin serves on the node (kConflictingPlugin)
  CardModes modes = {};  // of its cards
  std::vector<std::string> exhausted = {};  // names of dialects of which 0 are allocatable
  friend bool operator==(const ClusterNode&, const ClusterNode&) = default;
};

/// Tolerant.
///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<ClusterNode> parse_cluster_node(std::string_view text);

}  // namespace carve::codec
