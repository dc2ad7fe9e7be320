#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "port/kube_api.h"

namespace carve::node {

/// Removes what Carve wrote about a node. First its GPU objects, because while they exist other components treat the
/// cards as Carve's. Then on the Node: the agent's labels and conditions, the annotations that requeue pods, and the
/// `totals` that no other device plugin serves there. What others wrote stays, including users' own labels below
/// elasticgpu.io/. Call it only when no agent runs on the node, because an agent writes all of it again.
///   returns  the names of what was removed, for people
///   errors   the API server's; what was removed before stays removed, and another call removes the rest
///   cost     two reads, at most four writes and one per card
[[nodiscard]] Result<std::vector<std::string>> leave_node(KubeApi& api, const std::string& node,
                                                          const std::vector<std::string>& totals);

/// The pods of a node that hold cards through Carve: pods with a record, and pods with a claim of Carve's driver. A pod
/// that has ended holds none.
///   returns  "namespace/name"
///   errors   the API server's
///   cost     one list, one read per claim of the node's pods
[[nodiscard]] Result<std::vector<std::string>> holders_on(KubeApi& api, const std::string& node);

}  // namespace carve::node
