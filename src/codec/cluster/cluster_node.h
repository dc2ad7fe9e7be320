#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carve::codec {

/// A Node, what control needs of it.
struct ClusterNode {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string address = {};  // by which the cluster reaches it: its InternalIP; empty: it tells none
  std::uint64_t slots = 0;  // allocatable elasticgpu.io/slot
  bool leaving = false;     // its agent says that it is about to end (kAgentLeaving)
  std::vector<std::string> of_others = {};  // names that another device plugin serves there (kConflictingPlugin)
  friend bool operator==(const ClusterNode&, const ClusterNode&) = default;
};

/// Tolerant.
///   errors  kInvalidArgument: no JSON, or without a name
[[nodiscard]] Result<ClusterNode> parse_cluster_node(std::string_view text);

}  // namespace carve::codec
