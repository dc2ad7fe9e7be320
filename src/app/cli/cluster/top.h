#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"
#include "port/kube_api.h"

namespace carve::cli {

/// Reads what an agent answered; the wire is an adapter's.
using ReadView = std::function<Result<AgentView>(std::string_view)>;

/// What every node's agent (or `node`'s alone) says of this moment, asked through the API server with the caller's
/// own rights: to list pods, and to get `pods/proxy`, in `space`, where Carve is installed. Sorted by name; a node that
/// does not answer is in the list, with why.
///   errors  kNotFound: no agent (on that node); the API server's
///   cost    one call per node, 16 at once
[[nodiscard]] Result<std::vector<NodeView>> ask_agents(KubeApi& api, const std::string& space, const std::string& node,
                                                       const ReadView& read);

/// `carve top` of a cluster: per node and card its use, below it who uses it: wanted and delivered.
[[nodiscard]] std::string render_cluster_top(const std::vector<NodeView>& nodes);

}  // namespace carve::cli
