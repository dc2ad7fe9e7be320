#include "app/plugins/claims_left.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/plugins/device_names.h"
#include "codec/dra/claim.h"
#include "codec/dra/resource_slice.h"

namespace carve::plugins {
std::size_t ClaimsLeft::prepared() const {
  std::set<std::string> claims;
  for (const auto& slice : slices_.held()) {
    if (slice.owner.kind == OwnerKind::kClaim) claims.insert(slice.owner.uid);
  }
  return claims.size();
}

bool ClaimsLeft::is_here(const std::string& namespace_name, const std::string& claim, Known* known, Clock::Time now) {
  if (known->settled || now < known->next) return known->here;
  known->next = now + kAskAgain;
  const auto text =
      api_.get(fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", namespace_name, claim));
  const auto read = text ? codec::parse_claim(*text) : Result<codec::Claim>(tl::unexpected(text.error()));
  if (!read) return known->here;
  known->settled = read->allocated;
  known->here = std::any_of(read->results.begin(), read->results.end(), [this](const codec::ClaimResult& result) {
    return result.driver == kDriver && result.pool == node_;
  });
  return known->here;
}

bool ClaimsLeft::any(Clock::Time now) {
  bool left = prepared() != 0;
  std::set<std::pair<std::string, std::string>> used;
  for (const auto& pod : pods_.all()) {
    if (pod.ended && !pod.deleting) continue;
    for (const auto& use : pod.claims) {
      const std::pair key(pod.uid, use.claim);
      used.insert(key);
      left = is_here(pod.namespace_name, use.claim, &known_[key], now) || left;
    }
  }
  std::erase_if(known_, [&](const auto& entry) { return !used.contains(entry.first); });
  if (left) last_ = now;
  return last_ && now - *last_ < kLinger;
}

Result<std::size_t> ClaimsLeft::withdraw_slices() {
  CARVE_TRY(const auto texts, api_.list(std::string(kResourceSlices), {{"fieldSelector", slices_of_node(node_)}}));
  std::size_t deleted = 0;
  for (const auto& text : texts) {
    const auto slice = codec::parse_slice(text);
    if (!slice || slice->driver != kDriver || slice->node != node_) continue;
    const auto removed = api_.remove(fmt::format("{}/{}", kResourceSlices, slice->name));
    if (!removed && removed.error().code != Code::kNotFound) return tl::unexpected(removed.error());
    ++deleted;
  }
  return deleted;
}

}  // namespace carve::plugins
