#include "app/node/claim_holders.h"

#include <utility>

namespace carve::node {

void ClaimHolders::set(const std::vector<codec::GpuObject>& cards) {
  ByUid claims;
  for (const auto& card : cards) {
    for (const auto& holder : card.holders) {
      if (holder.slice.owner.kind != OwnerKind::kClaim || holder.name.empty()) continue;
      Claim& claim = claims[holder.slice.owner.uid];
      claim = {holder.namespace_name, holder.name, ""};
      if (holder.pods.size() == 1) claim.pod = holder.pods[0].substr(holder.pods[0].find('/') + 1);
    }
  }
  const MutexLock lock(mutex_);
  claims_ = std::move(claims);
}

ClaimHolders::ByUid ClaimHolders::all() const {
  const MutexLock lock(mutex_);
  return claims_;
}

}  // namespace carve::node
