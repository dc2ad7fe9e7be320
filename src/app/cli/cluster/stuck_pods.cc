#include "app/cli/cluster/stuck_pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "app/cli/cluster/claims.h"
#include "app/plugins/device_names.h"
#include "codec/cluster/cluster_pod.h"
#include "codec/dialects/dialect.h"
#include "codec/kubelet/node_pod.h"

namespace carve::cli {
namespace {

ClaimFacts facts_of(const codec::Claim& claim) {
  ClaimFacts facts;
  facts.name = claim.name;
  facts.allocated = claim.allocated;
  for (const auto& result : claim.results) {
    if (result.driver != plugins::kDriver) continue;
    const auto key = device_key(result);
    facts.node = result.pool;
    if (std::find(claim.ready.begin(), claim.ready.end(), key) == claim.ready.end()) facts.prepared = false;
    if (const auto found = claim.refused.find(key); found != claim.refused.end()) facts.refused = found->second;
  }
  if (!claim.allocated) facts.prepared = false;
  return facts;
}

PodsNode node_of(const std::map<std::string, PodsNode>& nodes, const std::string& name) {
  const auto found = nodes.find(name);
  return found == nodes.end() ? PodsNode() : found->second;
}

/// What is wrong with the node of a stuck pod, as cause and fix; two empty texts: nothing.
std::pair<std::string, std::string> trouble_of(const PodFacts& pod, const PodsNode& node) {
  if (!node.exists)
    return {
        "node " + pod.node + " does not exist",
        "the pod garbage collector of kube-controller-manager deletes such pods; if it does not run, delete the pod "
        "with --force"};
  if (!node.ready)
    return {"node " + pod.node + " is not ready",
            "see the kubelet of the node; if the machine is gone, delete the Node"};
  if (!node.agent_ready)
    return {"node " + pod.node + " has no ready agent", "see the pod of DaemonSet carve-agent on the node"};
  if (!pod.claims.empty() && !node.serves_claims)
    return {
        fmt::format("the pod has a claim, but the agent of node {} does not offer the DRA driver (the setting plugins "
                    "does not contain dra)",
                    pod.node),
        "add dra to plugins in ConfigMap carve-cluster; or, to let the pod end, see the log of the node's agent: it "
        "keeps the driver registered until the claims that it prepared have ended"};
  return {};
}

void not_ending(const PodFacts& pod, const PodsNode& node, std::vector<Finding>* out) {
  if (pod.waits.terminating_s.value_or(-1) < kEndsWithin) return;
  auto [cause, fix] = trouble_of(pod, node);
  if (!pod.waits.finalizers.empty()) {
    cause = fmt::format("its metadata.finalizers are not removed: {}", fmt::join(pod.waits.finalizers, ", "));
    fix = "see the controller that set them";
  } else if (cause.empty()) {
    cause =
        "its node and the node's agent are ready; processes of it may still run (on a card that hangs, they cannot "
        "be killed)";
    fix = fmt::format(
        "`kubectl describe pod` shows the kubelet's error; `carve top --cluster {}` shows processes that "
        "still use a card",
        pod.node);
  }
  out->push_back({Severity::kError,
                  fmt::format("pod {} has been terminating for {} s since its grace period ended", pod.name,
                              *pod.waits.terminating_s),
                  std::move(cause), std::move(fix), "pod-not-ending"});
}

void not_starting(const PodFacts& pod, const PodsNode& node, std::vector<Finding>* out) {
  if (!pod.waits.pending || !pod.waits.bound_s || pod.waits.terminating_s) return;
  const auto bound = *pod.waits.bound_s;
  const auto [trouble, remedy] = trouble_of(pod, node);
  for (const auto& claim : pod.claims) {
    if (claim.prepared || bound < kPreparesWithin) continue;
    std::string cause = trouble;
    std::string fix = remedy;
    if (!claim.refused.empty()) {
      cause = claim.refused;
      fix = "if the card stays full, delete the pod: its claim is allocated again, and not on a card that refused one";
    } else if (!claim.allocated) {
      cause =
          "the claim is not allocated: the pod's node was chosen without kube-scheduler, which alone allocates claims";
      fix = "delete the pod and select the node by nodeSelector kubernetes.io/hostname";
    } else if (cause.empty()) {
      cause = "the node's agent has not reported the claim as prepared";
      fix = "`kubectl describe pod` shows the kubelet's error; see the log of the node's agent";
    }
    out->push_back(
        {Severity::kError,
         fmt::format("pod {} has waited on node {} for {} s for claim {}", pod.name, pod.node, bound, claim.name),
         std::move(cause), std::move(fix), "claim-not-prepared"});
    return;
  }
  if (bound < (trouble.empty() ? kStartsWithin : kPreparesWithin)) return;
  out->push_back({trouble.empty() ? Severity::kNote : Severity::kError,
                  fmt::format("pod {} was bound to node {} {} s ago and has not started", pod.name, pod.node, bound),
                  trouble.empty() ? "its node and the node's agent are ready" : trouble,
                  trouble.empty() ? "`kubectl describe pod` says what it waits for, such as its image" : remedy,
                  "pod-not-starting"});
}

void without_card(const PodFacts& pod, std::vector<Finding>* out) {
  if (pod.asks_without_slots.empty()) return;
  out->push_back({Severity::kError, fmt::format("static pod {} runs without a card", pod.name),
                  fmt::format("it requests {} but no {}; admission, which adds the slots, does not see static pods",
                              pod.asks_without_slots, codec::kSlots),
                  fmt::format("add the limit {} with the number of cards to the container in the pod's file on node {}",
                              codec::kSlots, pod.node),
                  "static-pod-without-cards"});
}

/// Keeps kMostStuck findings of each kind.
void shorten(std::vector<Finding>* findings) {
  std::map<std::string, std::size_t> seen;
  std::vector<Finding> kept;
  for (auto& finding : *findings) {
    if (++seen[finding.id] <= kMostStuck) kept.push_back(finding);
  }
  for (const auto& [id, count] : seen) {
    if (count <= kMostStuck) continue;
    // Clang 14 captures a structured binding only by an initializer.
    const auto last = std::find_if(kept.rbegin(), kept.rend(), [&id = id](const Finding& one) { return one.id == id; });
    last->cause += fmt::format(" (and {} more pods with this finding)", count - kMostStuck);
  }
  *findings = std::move(kept);
}

}  // namespace

std::vector<PodFacts> pods_with_cards(KubeApi& api, const std::vector<std::string>& pods,
                                      const std::vector<std::string>& claims, std::int64_t now_unix_s) {
  CarveClasses classes(api);
  std::map<std::string, ClaimFacts> by_name;  // "namespace/name"
  for (const auto& text : claims) {
    const auto claim = codec::parse_claim(text);
    if (claim && is_of_carve(*claim, classes)) by_name[claim->namespace_name + "/" + claim->name] = facts_of(*claim);
  }
  std::vector<PodFacts> all;
  for (const auto& text : pods) {
    const auto pod = codec::parse_node_pod(text);
    const auto whole = codec::parse_cluster_pod(text);
    if (!pod || !whole || (pod->ended && !pod->deleting)) continue;
    PodFacts facts;
    facts.name = pod->namespace_name + "/" + pod->name;
    facts.node = pod->node;
    facts.slots = codec::carries_slots(whole->ask) || !pod->record.empty();
    facts.asks_without_slots = pod->asks_without_slots;
    std::set<std::string> names;
    for (const auto& use : pod->claims) names.insert(pod->namespace_name + "/" + use.claim);
    for (const auto& name : names) {
      if (const auto found = by_name.find(name); found != by_name.end()) facts.claims.push_back(found->second);
    }
    if (!facts.slots && facts.claims.empty() && facts.asks_without_slots.empty()) continue;
    facts.waits = codec::pod_waits(text, now_unix_s);
    all.push_back(std::move(facts));
  }
  return all;
}

namespace {

/// Counts pods and keeps the first one, for a note about all of them.
struct Counted {
  std::size_t count = 0;
  const PodFacts* first = nullptr;
  void add(const PodFacts& pod) {
    if (count++ == 0) first = &pod;
  }
};

}  // namespace

std::vector<Finding> stuck_pods(const std::vector<PodFacts>& pods, const std::map<std::string, PodsNode>& nodes) {
  std::vector<Finding> found;
  Counted unallocated;
  Counted left;
  for (const auto& pod : pods) {
    const auto node = node_of(nodes, pod.node);
    not_ending(pod, node, &found);
    not_starting(pod, node, &found);
    without_card(pod, &found);
    const bool waits = pod.node.empty() && std::any_of(pod.claims.begin(), pod.claims.end(),
                                                       [](const ClaimFacts& claim) { return !claim.allocated; });
    if (waits) unallocated.add(pod);
    if (!pod.claims.empty() && node.agent_ready && !node.serves_claims) left.add(pod);
  }
  shorten(&found);
  if (unallocated.count != 0)
    found.push_back({Severity::kNote, fmt::format("{} pod(s) wait for the allocation of a claim", unallocated.count),
                     fmt::format("first: {}, claim {}; kube-scheduler allocates claims", unallocated.first->name,
                                 unallocated.first->claims.front().name),
                     fmt::format("carve explain {}", unallocated.first->name), "claims-wait"});
  if (left.count != 0)
    found.push_back(
        {Severity::kNote,
         fmt::format("{} pod(s) with claims are on nodes without dra in the setting plugins", left.count),
         fmt::format("first: {} on node {}; the agent keeps the DRA driver registered until they end, and "
                     "prepares no new claim",
                     left.first->name, left.first->node),
         "none needed; delete such a pod if it has not started, or add dra to plugins in ConfigMap "
         "carve-cluster",
         "claims-left"});
  return found;
}

}  // namespace carve::cli
