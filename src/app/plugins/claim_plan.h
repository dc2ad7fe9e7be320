#pragma once

#include <string>
#include <vector>

#include "codec/dra/claim.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::plugins {

/// One request of a claim: what is prepared, and its allocated devices.
struct PlannedPart {
  PrepareRequest request;
  std::vector<ClaimDevice> devices;  // without CDI names: the first device gets the name of the part
};

/// The claim's allocation as slices of this node's cards. Pure.
///   errors  kFailedPrecondition: not allocated, or for another node; kNotFound: a card that this node does not have;
///           kInvalidArgument: an illegal amount or configuration, or one request twice on a card;
///           kUnimplemented: a configuration of another version. The texts say cause and fix.
[[nodiscard]] Result<std::vector<PlannedPart>> plan_claim(const codec::Claim& claim, const std::string& node,
                                                          const GpuInventory& cards);

}  // namespace carve::plugins
