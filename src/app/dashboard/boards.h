#pragma once

#include <map>
#include <string>

#include "codec/views/board.h"
#include "codec/views/cluster_view.h"
#include "port/agent_api.h"

namespace carve::dashboard {

/// The board of one machine. A slice of `carve run` has no namespace.
///   in   node: the machine's name
[[nodiscard]] codec::Board board_of_machine(const AgentView& view, const std::string& node);

/// The last answer of each node's agent, by node.
using AgentViews = std::map<std::string, NodeView>;

/// The board of a cluster: what is granted according to the ledger, with the use that the agents reported. A node
/// without a report has cards and slices without use. It has no events: see ClusterEvents.
[[nodiscard]] codec::Board board_of_cluster(const codec::ClusterView& view, const AgentViews& agents);

}  // namespace carve::dashboard
