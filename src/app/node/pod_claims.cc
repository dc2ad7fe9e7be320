#include "app/node/pod_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/plugins/device_names.h"
#include "codec/dra/claim.h"

namespace carve::node {
namespace {

using std::chrono::seconds;

constexpr auto kAgain = seconds(10);
constexpr auto kClassLasts = seconds(60);

/// The key of a claim's refusal in the Node's condition.
std::string refusal_key(const std::pair<std::string, std::string>& claim) {
  return fmt::format("claim {}/{} without allocation", claim.first, claim.second);
}

}  // namespace

/// Whether one of the DeviceClasses is Carve's: its object contains the driver's name. Only kube-scheduler evaluates
/// its expressions.
bool PodClaims::is_of_carve(const std::vector<std::string>& classes, Clock::Time now) {
  for (const auto& name : classes) {
    auto found = classes_.find(name);
    if (found == classes_.end() || now >= found->second.second) {
      const auto text = api_.get("/apis/resource.k8s.io/v1/deviceclasses/" + name);
      const bool named = text && text->find(plugins::kDriver) != std::string::npos;
      found = classes_.insert_or_assign(name, std::pair(named, now + kClassLasts)).first;
    }
    if (found->second.first) return true;
  }
  return false;
}

void PodClaims::read_claim(const codec::NodePod& pod, const Key& key, Known* known, Clock::Time now) {
  known->next = now + kAgain;
  const auto text = api_.get(fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
                                         key.first, key.second));
  if (!text) return;
  const auto claim = codec::parse_claim(*text);
  if (!claim) return;
  known->uid = claim->uid;
  known->settled = claim->allocated;
  names_[claim->uid] = {key.first, key.second};
  if (claim->allocated) notices_.settled(refusal_key(key));
  if (claim->allocated || !pod.pending || !is_of_carve(claim->classes, now)) return;
  const auto cause = fmt::format("claim {} has no allocation: spec.nodeName bound the pod to node {} without the "
                                 "scheduler, which alone allocates claims; delete the pod and select the node by "
                                 "nodeSelector kubernetes.io/hostname instead",
                                 key.second, pod.node);
  notices_.warn({"Pod", pod.namespace_name, pod.name, pod.uid, "ClaimNotAllocated", cause});
  notices_.refused(refusal_key(key), fmt::format("pod {}/{}: {}", pod.namespace_name, pod.name, cause));
}

void PodClaims::forget(const std::vector<codec::NodePod>& pods) {
  std::set<Key> used;
  for (const auto& pod : pods) {
    for (const auto& use : pod.claims) used.emplace(pod.namespace_name, use.claim);
  }
  std::erase_if(known_, [&](const auto& entry) {
    if (used.contains(entry.first)) return false;
    notices_.settled(refusal_key(entry.first));
    return true;
  });
  std::erase_if(names_, [&](const auto& entry) {
    return !used.contains({entry.second.namespace_name, entry.second.name});
  });
}

bool PodClaims::step(const std::vector<codec::NodePod>& pods, const std::vector<HeldSlice>& holdings,
                     Clock::Time now) {
  forget(pods);
  // A claim that was re-created under its old name appears as an unknown owner.
  const bool unknown_owner = std::any_of(holdings.begin(), holdings.end(), [&](const HeldSlice& holding) {
    return holding.slice.owner.kind == OwnerKind::kClaim &&
           !names_.contains(holding.slice.owner.uid);
  });
  std::size_t asked = 0;
  bool left = false;
  for (const auto& pod : pods) {
    if (pod.ended) continue;
    for (const auto& use : pod.claims) {
      const Key key{pod.namespace_name, use.claim};
      auto& known = known_[key];
      if (known.settled && !unknown_owner) continue;
      left = true;
      if (now < known.next || asked >= kAtOnce) continue;
      ++asked;
      read_claim(pod, key, &known, now);
    }
  }
  return left;
}

}  // namespace carve::node
