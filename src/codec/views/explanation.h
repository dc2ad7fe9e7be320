#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/cluster/ranking.h"
#include "core/cluster/what_if.h"
#include "core/model/record.h"
#include "core/model/request.h"

namespace carve::codec {

/// One request of a ResourceClaim of the pod, as text for people. kube-scheduler allocates claims, not control.
struct ClaimExplanation {
  std::string claim;    // the object's name; empty: it does not exist yet
  std::string request;  // empty: the claim cannot be read
  std::string asks;     // "1 device of class gpu, memory 4Gi, cores 30"
  std::string device;   // "gpu-8f0c… on node n1, memory 4Gi, cores 30"; empty: not allocated
  std::string state;    // "prepared", "allocated, not prepared", or why not
};

/// The explanation of one pod and its cards.
struct Explanation {
  std::string namespace_name;
  std::string name;
  std::string node;   // empty: none yet
  std::string state;  // for a person: "waits, not bound to a node"
  bool ended = false;
  std::string wrong;                // the faults of its request or its record; empty: none
  std::vector<PartRequest> asks;    // empty: it requests no card
  std::vector<RecordPart> holds;    // from its record
  std::vector<ClaimExplanation> claims;  // its claims for Carve's devices
  std::uint64_t epoch = 0;          // of control at the time of the decision
  std::string policy;               // the policies that rank nodes and cards, and the scopes that set them
  std::size_t nodes = 0;            // the number of nodes with cards
  std::vector<std::string> fits;    // nodes that would fit it now if it had no node; the policy's choice first
  std::vector<RankedNode> ranked;   // the first of them, with the terms of their scores
  std::vector<RefusedGroup> refused;  // the other nodes
  bool final = false;               // the other nodes will not fit, regardless of which pods leave
  SmallerAsk smaller;               // the smaller requests that would fit, where no node fits
  std::string scheduler_says;       // the scheduler's last event about the pod; empty: none
  std::string unread;               // a sentence about relevant data that the caller may not read; empty: none
};

/// The keys are a stable API, as in cluster_view.h.
[[nodiscard]] std::string to_json(const Explanation& explanation);

}  // namespace carve::codec
