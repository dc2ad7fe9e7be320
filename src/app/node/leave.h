#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "port/kube_api.h"

namespace carve::node {

/// Takes back what Carve wrote of a Node. First its GPU objects: as long as they are there its cards are Carve's for
/// everybody else. On the Node then the labels and conditions of its agent, annotations by which pods are woken, and
/// those of `totals` that no other device plugin serves there. What others wrote stays, users' own labels below
/// elasticgpu.io/ too. For when no agent runs there any more: one that does writes it again.
///   returns  the names of what was taken away, for people
///   errors   the API server's; what is away by then stays away, and doing it again does the rest
///   cost     two reads, at most four writes and one per card
[[nodiscard]] Result<std::vector<std::string>> leave_node(KubeApi& api, const std::string& node,
                                                          const std::vector<std::string>& totals);

/// The pods of a node that hold cards through Carve: those with a record, and those with a claim of ours. One that has
/// ended holds none.
///   returns  "namespace/name"
///   errors   the API server's
///   cost     one list, one read per claim of the node's pods
[[nodiscard]] Result<std::vector<std::string>> holders_on(KubeApi& api, const std::string& node);

}  // namespace carve::node
