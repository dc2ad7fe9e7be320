#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codec/cluster/installation.h"
#include "codec/dra/claim.h"
#include "core/model/finding.h"
#include "port/kube_api.h"

// Pods with cards that do not start or do not end, for `carve doctor --cluster`.
namespace carve::cli {

/// A claim for Carve's devices, as one of its pods needs it.
struct ClaimFacts {
  std::string name;
  bool allocated = false;
  std::string node;      // the node of the cards that it was allocated
  bool prepared = true;  // the node's agent has reported all its devices as ready
  std::string refused;   // why the agent refuses it; empty: it does not
};

/// A pod that requests or holds Carve's cards.
struct PodFacts {
  std::string name;  // "namespace/name"
  std::string node;  // empty: none
  bool slots = false;
  codec::PodWaits waits;
  std::string asks_without_slots;  // of a static pod: see codec::NodePod
  std::vector<ClaimFacts> claims;
};

/// The node of a stuck pod.
struct PodsNode {
  bool exists = false;
  bool ready = false;
  bool agent_ready = false;
  bool serves_claims = false;  // its GPU objects name the DRA driver
};

/// The pods (JSON) that concern cards, with their claims (JSON, all of the cluster).
[[nodiscard]] std::vector<PodFacts> pods_with_cards(KubeApi& api, const std::vector<std::string>& pods,
                                                    const std::vector<std::string>& claims, std::int64_t now_unix_s);

/// How long a pod may take before it is a finding.
inline constexpr std::int64_t kEndsWithin = 60;      // seconds after its grace period
inline constexpr std::int64_t kPreparesWithin = 60;  // seconds from its binding to prepared claims
inline constexpr std::int64_t kStartsWithin = 300;   // seconds from its binding to its first container (image pulls)

/// One finding per stuck pod, at most kMostStuck of each kind and one that counts the rest. Pure.
///   nodes  by name; a node that is missing does not exist
[[nodiscard]] std::vector<Finding> stuck_pods(const std::vector<PodFacts>& pods,
                                              const std::map<std::string, PodsNode>& nodes);
inline constexpr std::size_t kMostStuck = 5;

}  // namespace carve::cli
