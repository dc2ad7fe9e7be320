#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"
#include "port/kube_api.h"

namespace carve::cli {

/// Decodes an agent's answer. The format is known to an adapter only.
using ReadView = std::function<Result<AgentView>(std::string_view)>;

/// The current view of the agent on each node, or only on `node`, read through the API server. The caller needs the
/// permission to list pods and to get `pods/proxy` in `namespace_name`, the namespace of Carve. Sorted by node name. A
/// node with an agent that does not answer is in the list, with the reason.
///   errors  kNotFound: no agent (on that node); those of the API server
///   cost    one call per node, 16 concurrently
[[nodiscard]] Result<std::vector<NodeView>> ask_agents(KubeApi& api, const std::string& namespace_name,
                                                       const std::string& node, const ReadView& read);

/// The answer of the agent on `node` to a GET of `path`, such as "/v1/history".
///   errors  kNotFound: no agent on that node; those of the API server
[[nodiscard]] Result<std::string> ask_agent(KubeApi& api, const std::string& namespace_name, const std::string& node,
                                            const std::string& path, const KubeApi::Query& query);

/// `carve top` of a cluster: the use of each card of each node, and below it the slices and processes that use it, with
/// requested and delivered compute.
[[nodiscard]] std::string render_cluster_top(const std::vector<NodeView>& nodes);

}  // namespace carve::cli
