#include "app/node/pod_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/doors/device_names.h"
#include "codec/dra/claim.h"

namespace carve::node {
namespace {

using std::chrono::seconds;

constexpr auto kAgain = seconds(10);
constexpr auto kClassLasts = seconds(60);

/// Whose refusal it is, for the Node's condition.
std::string who(const std::pair<std::string, std::string>& claim) {
  return fmt::format("claim {}/{} without allocation", claim.first, claim.second);
}

}  // namespace

/// A class is ours when what it says names our driver; its expressions are the scheduler's to
/// evaluate.
bool PodClaims::ours(const std::vector<std::string>& classes, Clock::Time now) {
  for (const auto& name : classes) {
    auto found = classes_.find(name);
    if (found == classes_.end() || now >= found->second.second) {
      const auto text = api_.get("/apis/resource.k8s.io/v1/deviceclasses/" + name);
      const bool named = text && text->find(doors::kDriver) != std::string::npos;
      found = classes_.insert_or_assign(name, std::pair(named, now + kClassLasts)).first;
    }
    if (found->second.first) return true;
  }
  return false;
}

void PodClaims::look(const codec::NodePod& pod, const Key& key, Known* known, Clock::Time now) {
  known->next = now + kAgain;
  const auto text = api_.get(fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
                                         key.first, key.second));
  if (!text) return;
  const auto claim = codec::parse_claim(*text);
  if (!claim) return;
  known->uid = claim->uid;
  known->settled = claim->allocated;
  names_[claim->uid] = {key.first, key.second};
  if (claim->allocated) notices_.settled(who(key));
  if (claim->allocated || !pod.pending || !ours(claim->classes, now)) return;
  const auto cause = fmt::format("claim {} has no allocation: the pod came to node {} by spec.nodeName, past the "
                                 "scheduler, and nobody else allocates; delete the pod and choose the node by "
                                 "nodeSelector kubernetes.io/hostname instead",
                                 key.second, pod.node);
  notices_.warn({"Pod", pod.space, pod.name, pod.uid, "ClaimNotAllocated", cause});
  notices_.refused(who(key), fmt::format("pod {}/{}: {}", pod.space, pod.name, cause));
}

void PodClaims::forget(const std::vector<codec::NodePod>& pods) {
  std::set<Key> used;
  for (const auto& pod : pods) {
    for (const auto& use : pod.claims) used.emplace(pod.space, use.claim);
  }
  std::erase_if(known_, [&](const auto& entry) {
    if (used.contains(entry.first)) return false;
    notices_.settled(who(entry.first));
    return true;
  });
  std::erase_if(names_, [&](const auto& entry) {
    return !used.contains({entry.second.space, entry.second.name});
  });
}

bool PodClaims::step(const std::vector<codec::NodePod>& pods, const std::vector<HeldSlice>& holdings,
                     Clock::Time now) {
  forget(pods);
  // A claim that was made anew under its old name shows as somebody whom nobody knows.
  const bool strangers = std::any_of(holdings.begin(), holdings.end(), [&](const HeldSlice& holding) {
    return holding.slice.owner.kind == OwnerKind::kClaim &&
           !names_.contains(holding.slice.owner.uid);
  });
  std::size_t asked = 0;
  bool left = false;
  for (const auto& pod : pods) {
    if (pod.ended) continue;
    for (const auto& use : pod.claims) {
      const Key key{pod.space, use.claim};
      auto& known = known_[key];
      if (known.settled && !strangers) continue;
      left = true;
      if (now < known.next || asked >= kAtOnce) continue;
      ++asked;
      look(pod, key, &known, now);
    }
  }
  return left;
}

}  // namespace carve::node
