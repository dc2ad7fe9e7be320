#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/timeline.h"
#include "base/result.h"
#include "core/history/history.h"
#include "port/agent_api.h"
#include "port/kube_api.h"

// What the agents of a cluster report, read through the API server with the caller's rights.
namespace carve::cli {

/// The answer of the agent on a node, or why there is none.
struct AgentAnswer {
  std::string node;
  Result<std::string> text;
};

/// The answers to a GET of `path`, such as "/v1/history", of all agents, or only of the one on `node`. The caller needs
/// the permission to list pods and to get `pods/proxy` in `namespace_name`, the namespace of Carve. Sorted by node.
///   errors  kNotFound: no agent (on that node); those of the API server
///   cost    one call per node, 16 concurrently
[[nodiscard]] Result<std::vector<AgentAnswer>> ask_each(KubeApi& api, const std::string& namespace_name,
                                                        const std::string& node, const std::string& path,
                                                        const KubeApi::Query& query);

/// The answer of the agent on `node` to a GET of `path`, such as "/v1/history".
///   errors  kNotFound: no agent on that node; those of the API server
[[nodiscard]] Result<std::string> ask_agent(KubeApi& api, const std::string& namespace_name, const std::string& node,
                                            const std::string& path, const KubeApi::Query& query);

/// The history of each node, or only of `node`. Rights and errors as of ask_each().
[[nodiscard]] Result<std::vector<NodeHistory>> ask_histories(KubeApi& api, const std::string& namespace_name,
                                                             const std::string& node, const HistoryQuery& query);

/// The history of all nodes, handed over one by one instead of kept: `count` gets the number of agents, then `take`
/// each answer. Returns early after the stop is requested. Rights and errors as of ask_each().
[[nodiscard]] Result<void> each_history(KubeApi& api, const std::string& namespace_name, const HistoryQuery& query,
                                        const std::function<void(std::size_t)>& count,
                                        const std::function<void(const Result<HistoryAnswer>&)>& take,
                                        const std::stop_token& stop);

/// Decodes an agent's answer. The format is known to an adapter only.
using ReadView = std::function<Result<AgentView>(std::string_view)>;

/// The current view of the agent on each node, or only on `node`, read through the API server. The caller needs the
/// permission to list pods and to get `pods/proxy` in `namespace_name`, the namespace of Carve. Sorted by node name. A
/// node with an agent that does not answer is in the list, with the reason.
///   errors  kNotFound: no agent (on that node); those of the API server
///   cost    one call per node, 16 concurrently
[[nodiscard]] Result<std::vector<NodeView>> ask_agents(KubeApi& api, const std::string& namespace_name,
                                                       const std::string& node, const ReadView& read);

}  // namespace carve::cli
