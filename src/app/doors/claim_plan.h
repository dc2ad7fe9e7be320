#pragma once

#include <string>
#include <vector>

#include "codec/dra/claim.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::doors {

/// One request of a claim: what is prepared, and the allocated devices that it answers for.
struct PlannedPart {
  PrepareRequest request;
  std::vector<ClaimDevice> devices;  // without CDI names: the first one gets the part's
};

/// The claim's allocation as slices of this node's cards. Pure.
///   errors  kFailedPrecondition: not allocated, or for another node; kNotFound: a card that is not here;
///           kInvalidArgument: an amount or a configuration that is illegal, or one request twice on a card;
///           kUnimplemented: a configuration of another version. Texts say cause and fix.
[[nodiscard]] Result<std::vector<PlannedPart>> plan_claim(const codec::Claim& claim, const std::string& node,
                                                          const GpuInventory& cards);

}  // namespace carve::doors
