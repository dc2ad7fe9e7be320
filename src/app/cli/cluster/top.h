#pragma once

#include <string>
#include <vector>

#include "port/agent_api.h"

namespace carve::cli {

/// `carve top` of a cluster: the use of each card of each node, and below it the slices and processes that use it, with
/// requested and delivered compute.
[[nodiscard]] std::string render_cluster_top(const std::vector<NodeView>& nodes);

}  // namespace carve::cli
