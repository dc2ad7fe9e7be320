#include "app/cli/cluster/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/cells.h"
#include "app/cli/doctor.h"

namespace carve::cli {
namespace {

using Findings = std::vector<Finding>;

constexpr const char* kInstall =
    "apply deploy/crds, deploy and, for Carve's own placement, deploy/control (see README)";
constexpr int kOldestMinor = 34;  // DeviceClasses of resource.k8s.io/v1, as deploy/chart/Chart.yaml says

void add(Findings& out, Severity severity, const char* id, std::string what, std::string cause, std::string fix) {
  out.push_back({severity, std::move(what), std::move(cause), std::move(fix), id});
}


void look_at_workload(const std::optional<codec::Workload>& workload, const std::string& name, bool wanted,
                      const std::string& space, Findings& out) {
  if (!workload) {
    if (wanted)
      add(out, Severity::kError, "not-installed", name + " is not installed", "no such object in namespace " + space,
          std::string(kInstall) + "; where it is in another namespace: --carve-namespace");
    return;
  }
  const auto describe = [&] { return fmt::format("kubectl -n {} describe pods, of {}", space, name); };
  if (workload->ready == 0 && (workload->wanted > 0 || wanted)) {
    add(out, Severity::kError, "none-ready", fmt::format("no pod of {} is ready", name),
        fmt::format("0 of {}", workload->wanted), describe());
  } else if (workload->ready < workload->wanted) {
    add(out, Severity::kWarning, "not-all-ready", fmt::format("not every pod of {} is ready", name),
        fmt::format("{} of {}", workload->ready, workload->wanted), describe());
  }
  if (workload->updated < workload->wanted)
    add(out, Severity::kNote, "roll-out", fmt::format("{} is being rolled out", name),
        fmt::format("{} of {} pods are of the new template", workload->updated, workload->wanted),
        "nothing; old and new agents understand each other's libraries");
}

void look_at_leader(const ClusterFacts& facts, Findings& out) {
  if (!facts.control) return;
  if (facts.leader.empty() || facts.lease_age_s < 0) {
    add(out, Severity::kError, "no-leader", "no replica of carve-control leads", "Lease carve-control has no holder",
        "pods with cards are not bound until one does: see the log of Deployment carve-control");
  } else if (facts.lease_seconds > 0 && facts.lease_age_s > 2 * facts.lease_seconds) {
    add(out, Severity::kError, "no-leader", "the leader of carve-control is gone",
        fmt::format("{} renewed its lease {} s ago, it is good for {} s", facts.leader, facts.lease_age_s,
                    facts.lease_seconds),
        "another replica should have taken over: see the log of Deployment carve-control; or the clocks here and "
        "there differ");
  }
}

void look_at_admission(const ClusterFacts& facts, Findings& out) {
  if (!facts.policies_missing.empty())
    add(out, Severity::kError, "policies-missing", "who may write what is not guarded",
        "missing: " + joined(facts.policies_missing),
        "apply deploy/agent-policy.yaml and deploy/control/{record,leader,control}-policy.yaml");
  if (!facts.control_wanted) return;
  if (!facts.webhooks_missing.empty())
    add(out, Severity::kError, "webhook-missing", "requests are not read at admission",
        "missing: " + joined(facts.webhooks_missing), "apply deploy/control/webhook.yaml");
  if (!facts.webhooks_without_authority.empty())
    add(out, Severity::kError, "webhook-authority", "the API server cannot trust the webhook",
        "no caBundle in " + joined(facts.webhooks_without_authority),
        "carve-control writes it: see its log, and its right to patch webhook configurations");
  if (facts.nonsense && facts.nonsense->empty())
    add(out, Severity::kError, "nonsense-admitted", "a pod that asks for nonsense is admitted",
        "a dry run with elasticgpu.io/gpu-core: 7777 was taken",
        "see that the webhook's matchConditions are Carve's own");
  else if (facts.nonsense && facts.nonsense->find("7777") == std::string::npos)
    add(out, Severity::kError, "webhook-down", "the webhook does not answer", *facts.nonsense,
        "pods that ask for cards are refused until it does: see Service and Deployment carve-control, and whether the "
        "API server reaches pods on port 8443");
}

/// An agent runs on nodes without cards as well, and cannot tell a card without a driver from none.
void note_without_cards(const std::vector<std::string>& nodes, Findings& out) {
  if (nodes.empty()) return;
  add(out, Severity::kNote, "no-cards",
      fmt::format("{} node(s) have no driver, and no card that anybody knows of", nodes.size()), joined(nodes),
      "nothing where no card is; where one is: install or load the driver, so that nvidia-smi on the host lists it");
}

void look_at_nodes(const ClusterFacts& facts, Findings& out) {
  std::vector<std::string> without_cards;
  for (const auto& node : facts.nodes) {
    const auto has_cards = std::any_of(facts.cards.begin(), facts.cards.end(),
                                       [&](const codec::GpuObject& gpu) { return gpu.node == node.name; });
    for (const auto& condition : node.conditions) {
      if (!condition.on) continue;
      if (condition.type == "GPUDriverAbsent" && !has_cards && !node.labelled) {
        without_cards.push_back(node.name);
        continue;
      }
      const auto cut = condition.message.find("; ");
      const bool two = cut != std::string::npos;
      add(out, Severity::kError, "node-condition", fmt::format("node {}: {}", node.name, condition.type),
          condition.message.substr(0, cut), two ? condition.message.substr(cut + 2) : "carve doctor --node, on it");
    }
    if (has_cards && !node.agent_ready)
      add(out, Severity::kError, "agent-not-ready",
          fmt::format("node {} has cards and no agent that is ready", node.name),
          node.ready ? "the node itself is ready" : "the node is not ready",
          "what runs there keeps its limits, nothing new starts: see DaemonSet carve-agent's pod on it");
    if (!node.mapped_and_served.empty())
      add(out, Severity::kError, "mapped-and-served",
          fmt::format("node {}: a DeviceClass and a device plugin give out the same name", node.name),
          joined(node.mapped_and_served),
          "the scheduler then takes the plugin's and Carve is not asked: remove the plugin there, or the class's "
          "extendedResourceName");
  }
  note_without_cards(without_cards, out);
}

void look_at_cards(const ClusterFacts& facts, Findings& out) {
  for (const auto& gpu : facts.cards) {
    if (!gpu.card.health.ok)
      add(out, Severity::kError, "card-unhealthy", fmt::format("node {}: card {} is unhealthy", gpu.node, gpu.index),
          gpu.card.health.reason,
          gpu.holders.empty() ? "nothing new starts on it; nobody holds it"
                              : "nothing new starts on it; carve inspect says who holds it");
  }
  for (const auto& [node, conflict] : facts.conflicts)
    add(out, Severity::kError, "conflict", fmt::format("node {}: more is promised than there is", node),
        fmt::format("{} on {}: {}", conflict.owner.uid, conflict.card.str(), conflict.why),
        "the card takes nothing new; deleting that pod ends it");
  if (!facts.waiting.empty()) {
    const auto& first = facts.waiting.front();
    add(out, Severity::kNote, "pods-wait", fmt::format("{} pod(s) wait for cards", facts.waiting.size()),
        fmt::format("first: {}/{} asks for {}: {}", first.space, first.name, first.asks, first.why),
        fmt::format("carve explain {}/{}", first.space, first.name));
  }
}

}  // namespace

std::vector<Finding> diagnose_cluster(const ClusterFacts& facts) {
  Findings out;
  if (facts.server.minor >= 0 && facts.server.minor < kOldestMinor)
    add(out, Severity::kError, "kubernetes-too-old", "this Kubernetes is too old",
        fmt::format("{}; DeviceClasses of resource.k8s.io/v1 are there since 1.{}", facts.server.text, kOldestMinor),
        "upgrade it: such a server takes only a part of deploy/");
  if (!facts.crd) add(out, Severity::kError, "not-installed", "Carve is not installed", "no GPU objects", kInstall);
  look_at_workload(facts.agents, "DaemonSet carve-agent", true, facts.space, out);
  look_at_workload(facts.arbiters, "DaemonSet carve-arbiter", true, facts.space, out);
  look_at_workload(facts.control, "Deployment carve-control", facts.control_wanted, facts.space, out);
  look_at_workload(facts.scheduler, "Deployment carve-scheduler", facts.control_wanted && facts.own_scheduler,
                   facts.space, out);
  look_at_leader(facts, out);
  look_at_admission(facts, out);
  look_at_nodes(facts, out);
  look_at_cards(facts, out);
  for (const auto& what : facts.unread)
    add(out, Severity::kNote, "not-looked-at", "could not be looked at: " + what.substr(0, what.find(": ")),
        what.find(": ") == std::string::npos ? what : what.substr(what.find(": ") + 2),
        "somebody with the right to read it sees more");
  sort_by_severity(&out);
  return out;
}

}  // namespace carve::cli
