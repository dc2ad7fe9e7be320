#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/node/runtime_cdi.h"
#include "codec/node/node_object.h"
#include "core/model/card.h"
#include "port/node_slices.h"

namespace carve::node {

/// All that may stand between this node and a start, gathered from wherever it shows. Empty texts
/// and lists: nothing.
struct NodeFacts {
  NodeTroubles troubles;
  std::vector<Card> cards;
  RuntimeVerdict runtime;
  std::string not_published;            // what of the node the API server does not take
  std::string refused;                  // starts that were refused a while ago, with cause and fix
  std::vector<std::string> unresolved;  // "namespace/pod/container" that waits for a CDI name
  std::size_t unresolved_seen = 0;      // since the agent started
  std::string withheld;                 // totals that are not set, and why
  std::string conflicting;              // names that somebody else's device plugin serves here
};

/// Every condition of a trouble that an agent sets, in the state that the facts ask for: True is a trouble.
/// Pure. The list of types also stands in deploy/agent-policy.yaml, or the API server refuses them.
[[nodiscard]] std::vector<codec::NodeCondition> conditions_of(const NodeFacts& facts);

/// What an agent says of itself when it is told to end, and the next one when it serves (codec::kAgentLeaving).
[[nodiscard]] codec::NodeCondition leaving_condition(bool leaving);

}  // namespace carve::node
