#pragma once

#include <string>
#include <vector>

#include "codec/dra/claim.h"
#include "core/model/record.h"
#include "port/kubelet.h"
#include "port/node_slices.h"

namespace carve::plugins {

/// What a claim's allocation means on this node.
struct ClaimPlan {
  Record record;  // the allocation as a decision: one part per request of the claim; epoch 0, because no leader decided
  std::vector<std::vector<ClaimDevice>> devices;  // by part: one per card, in the same order, without CDI names
};

/// The claim's allocation as a record of this node's cards: the only place in which an allocation is taken apart. Pure.
///   errors  kFailedPrecondition: not allocated, or for another node; kNotFound: a card that this node does not have;
///           kInvalidArgument: an illegal amount or configuration, or one request twice on a card;
///           kUnimplemented: a configuration of another version. The texts say cause and fix.
[[nodiscard]] Result<ClaimPlan> plan_claim(const codec::Claim& claim, const std::string& node,
                                           const GpuInventory& cards);

/// How to prepare one part of this record: the claim's pods hold it.
[[nodiscard]] PrepareRequest request_for(const codec::Claim& claim, const Record& record, const std::string& part);

}  // namespace carve::plugins
