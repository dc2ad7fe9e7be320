#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/node/runtime_cdi.h"
#include "codec/node/node_object.h"
#include "core/model/card.h"
#include "port/node_slices.h"

namespace carve::node {

/// Everything that may prevent a start on this node. Empty texts and lists: no trouble.
struct NodeFacts {
  NodeTroubles troubles;
  std::vector<Card> cards;
  RuntimeVerdict runtime;
  std::string not_published;            // objects of the node that the API server does not accept
  std::string refused;                  // current refusals of starts, with cause and fix
  std::vector<std::string> unresolved;  // "namespace/pod/container" of containers that wait for a CDI device
  std::size_t unresolved_seen = 0;      // since the agent started
  std::string withheld;                 // totals that are not set, and why
  std::string conflicting;              // resource names that another device plugin serves on this node
};

/// Every trouble condition that an agent sets, with its state by the facts: True is a trouble. Pure. The types must
/// also be in deploy/agent-policy.yaml, or the API server refuses them.
[[nodiscard]] std::vector<codec::NodeCondition> conditions_of(const NodeFacts& facts);

/// The condition that an agent sets to True after a stop signal, and the next agent to False when it serves
/// (codec::kAgentLeaving).
[[nodiscard]] codec::NodeCondition leaving_condition(bool leaving);

}  // namespace carve::node
