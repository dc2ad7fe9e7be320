#pragma once

#include <string>
#include <string_view>

#include "port/agent_api.h"

namespace carve::node {

/// What one node's agent tells a metrics collector, in Prometheus' text format: per card what the driver says, per
/// slice and card what was wanted and what is used and delivered, and whether the agent's own parts are well. A pod's
/// slices carry labels `namespace`, `pod` and `container`, empty for others.
///   cost  some 60 us per 100 slices (no call of anybody)
[[nodiscard]] std::string node_metrics(const AgentView& view, std::string_view node);

}  // namespace carve::node
