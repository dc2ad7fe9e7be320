#include "app/cli/cluster/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/cells.h"
#include "app/cli/doctor.h"
#include "app/plugins/device_names.h"

namespace carve::cli {
namespace {

using Findings = std::vector<Finding>;

constexpr const char* kInstall =
    "apply deploy/crds, deploy and, for Carve's own placement, deploy/control (see README)";
constexpr int kOldestMinor = 34;  // the first with resource.k8s.io/v1; deploy/chart/Chart.yaml has the same number

void add(Findings& out, Severity severity, const char* id, std::string what, std::string cause, std::string fix) {
  out.push_back({severity, std::move(what), std::move(cause), std::move(fix), id});
}

void look_at_workload(const std::optional<codec::Workload>& workload, const std::string& name, bool wanted,
                      const std::string& namespace_name, Findings& out) {
  if (!workload) {
    if (wanted)
      add(out, Severity::kError, "not-installed", name + " is not installed",
          "no such object in namespace " + namespace_name,
          std::string(kInstall) + "; if Carve is in another namespace, name it with --carve-namespace");
    return;
  }
  const auto describe = [&] {
    return fmt::format("`kubectl -n {} describe pods` of {} says why", namespace_name, name);
  };
  if (workload->ready == 0 && (workload->wanted > 0 || wanted)) {
    add(out, Severity::kError, "none-ready", fmt::format("no pod of {} is ready", name),
        fmt::format("0 of {} pods are ready", workload->wanted), describe());
  } else if (workload->ready < workload->wanted) {
    add(out, Severity::kWarning, "not-all-ready", fmt::format("not every pod of {} is ready", name),
        fmt::format("{} of {} pods are ready", workload->ready, workload->wanted), describe());
  }
  if (workload->updated < workload->wanted)
    add(out, Severity::kNote, "roll-out", fmt::format("{} is being rolled out", name),
        fmt::format("{} of {} pods have the new template", workload->updated, workload->wanted),
        "none needed; old and new agents work with each other's libraries");
}

void look_at_leader(const ClusterFacts& facts, Findings& out) {
  if (!facts.control) return;
  if (facts.leader.empty() || facts.lease_age_s < 0) {
    add(out, Severity::kError, "no-leader", "no replica of carve-control is the leader",
        "Lease carve-control has no holder",
        "no pod with cards is bound until a replica leads: see the log of Deployment carve-control");
  } else if (facts.lease_seconds > 0 && facts.lease_age_s > 2 * facts.lease_seconds) {
    add(out, Severity::kError, "no-leader", "the leader of carve-control is gone",
        fmt::format("{} renewed Lease carve-control {} s ago; leaseDurationSeconds is {}", facts.leader,
                    facts.lease_age_s, facts.lease_seconds),
        "another replica should have taken over: see the log of Deployment carve-control; if it leads, the clock of "
        "this host differs from the clock of its node");
  }
}

void look_at_admission(const ClusterFacts& facts, Findings& out) {
  if (!facts.policies_missing.empty())
    add(out, Severity::kError, "policies-missing",
        "admission policies that restrict the writers of objects are missing",
        "missing: " + joined(facts.policies_missing),
        "apply deploy/agent-policy.yaml and deploy/control/{record,leader,control}-policy.yaml");
  if (!facts.control_wanted) return;
  if (!facts.webhooks_missing.empty())
    add(out, Severity::kError, "webhook-missing", "the webhook that reads requests at admission is not configured",
        "missing: " + joined(facts.webhooks_missing), "apply deploy/control/webhook.yaml");
  if (!facts.webhooks_without_authority.empty())
    add(out, Severity::kError, "webhook-authority", "the API server cannot verify the webhook's certificate",
        "no caBundle in " + joined(facts.webhooks_without_authority),
        "carve-control writes the caBundle: see its log, and check its permission to patch webhook configurations");
  if (facts.nonsense && facts.nonsense->empty())
    add(out, Severity::kError, "nonsense-admitted", "a pod with an invalid request is admitted",
        "the API server admitted a dry run with elasticgpu.io/gpu-core: 7777; legal are 0 to 100 and multiples of 100",
        "restore the webhook's matchConditions from deploy/control/webhook.yaml");
  else if (facts.nonsense && facts.nonsense->find("7777") == std::string::npos)
    add(out, Severity::kError, "webhook-down", "the webhook does not answer", *facts.nonsense,
        "pods that request cards are refused until it answers: see Service and Deployment carve-control, and check "
        "that the API server reaches pods on port 8443");
}

/// An agent also runs on nodes without cards, and cannot distinguish a card without a driver from no card.
void note_without_cards(const std::vector<std::string>& nodes, Findings& out) {
  if (nodes.empty()) return;
  add(out, Severity::kNote, "no-cards", fmt::format("{} node(s) have no driver and no known card", nodes.size()),
      joined(nodes),
      "none needed on a node without cards; on a node with a card, install and load the driver so that nvidia-smi on "
      "the host lists the card");
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
          condition.message.substr(0, cut),
          two ? condition.message.substr(cut + 2) : "run `carve doctor --node` on the node");
    }
    if (has_cards && !node.agent_ready)
      add(out, Severity::kError, "agent-not-ready", fmt::format("node {} has cards but no ready agent", node.name),
          node.ready ? "the node itself is ready" : "the node is not ready",
          "running slices keep their limits, and no new slice starts: see the pod of DaemonSet carve-agent on the "
          "node");
    if (!node.mapped_and_served.empty())
      add(out, Severity::kError, "mapped-and-served",
          fmt::format("node {}: a DeviceClass and a device plugin offer the same resource name", node.name),
          joined(node.mapped_and_served),
          "the scheduler uses the plugin's cards without asking Carve: remove the plugin from the node, or "
          "extendedResourceName from the DeviceClass");
  }
  note_without_cards(without_cards, out);
}

void look_at_cards(const ClusterFacts& facts, Findings& out) {
  for (const auto& gpu : facts.cards) {
    const bool exists = std::any_of(facts.nodes.begin(), facts.nodes.end(),
                                    [&](const NodeFacts& node) { return node.name == gpu.node; });
    if (!gpu.card.health.ok && exists)
      add(out, Severity::kError, "card-unhealthy", fmt::format("node {}: card {} is unhealthy", gpu.node, gpu.index),
          gpu.card.health.reason,
          gpu.holders.empty() ? "no new slice starts on it; it has no slices"
                              : "no new slice starts on it; `carve inspect` lists the pods that have slices on it");
  }
  for (const auto& [node, conflict] : facts.conflicts)
    add(out, Severity::kError, "conflict", fmt::format("node {}: the records exceed the card's capacity", node),
        fmt::format("{} on {}: {}", conflict.owner.uid, conflict.card.str(), conflict.why),
        "the card takes no new slice until the conflict ends; deleting the pod with this UID ends it");
  if (!facts.waiting.empty()) {
    const auto& first = facts.waiting.front();
    add(out, Severity::kNote, "pods-wait", fmt::format("{} pod(s) wait for cards", facts.waiting.size()),
        fmt::format("first: {}/{} requests {}: {}", first.namespace_name, first.name, first.asks, first.why),
        fmt::format("carve explain {}/{}", first.namespace_name, first.name));
  }
}

void look_at_slices(const ClusterFacts& facts, Findings& out) {
  for (const auto& node : facts.nodes) {
    const auto on = [&](const char* type) {
      return std::any_of(node.conditions.begin(), node.conditions.end(),
                         [&](const codec::NodeCondition& one) { return one.type == type && one.on; });
    };
    // A node with a runtime that lacks CDI offers nothing, and the condition has a finding of its own.
    if (!node.serves_claims || node.slices_published || !node.agent_ready || on("RuntimeWithoutCDI")) continue;
    add(out, Severity::kError, "slices-missing",
        fmt::format("node {} offers its cards to claims but has no ResourceSlice", node.name),
        fmt::format(
            "the API server has no ResourceSlice of driver {} for the node, so kube-scheduler allocates none of "
            "its cards",
            plugins::kDriver),
        "the node's agent writes them within seconds after the kubelet has registered the driver; if this persists, "
        "see "
        "its log, check deploy/agent-rbac.yaml and delete the agent's pod");
  }
}

void look_at_settings(const ClusterFacts& facts, Findings& out) {
  for (const auto& one : facts.settings)
    add(out, Severity::kError, "settings-invalid", fmt::format("ConfigMap {} has invalid settings", one.config_map),
        one.error, "correct the line; until then the processes keep the settings that they had");
}

void look_at_pods(const ClusterFacts& facts, Findings& out) {
  std::map<std::string, PodsNode> nodes;
  for (const auto& node : facts.nodes) nodes[node.name] = {true, node.ready, node.agent_ready, node.serves_claims};
  for (auto& finding : stuck_pods(facts.pods, nodes)) out.push_back(std::move(finding));
}

}  // namespace

std::vector<Finding> diagnose_cluster(const ClusterFacts& facts) {
  Findings out;
  if (facts.server.minor >= 0 && facts.server.minor < kOldestMinor)
    add(out, Severity::kError, "kubernetes-too-old", "this Kubernetes is too old",
        fmt::format("{}; Carve needs DeviceClasses of resource.k8s.io/v1, which exist since 1.{}", facts.server.text,
                    kOldestMinor),
        "upgrade Kubernetes: this API server accepts only some of the objects in deploy/");
  if (!facts.crd)
    add(out, Severity::kError, "not-installed", "Carve is not installed",
        "the API server has no resource gpus.elasticgpu.io", kInstall);
  look_at_workload(facts.agents, "DaemonSet carve-agent", true, facts.namespace_name, out);
  look_at_workload(facts.arbiters, "DaemonSet carve-arbiter", true, facts.namespace_name, out);
  look_at_workload(facts.control, "Deployment carve-control", facts.control_wanted, facts.namespace_name, out);
  look_at_workload(facts.scheduler, "Deployment carve-scheduler", facts.control_wanted && facts.own_scheduler,
                   facts.namespace_name, out);
  look_at_leader(facts, out);
  look_at_admission(facts, out);
  look_at_nodes(facts, out);
  look_at_cards(facts, out);
  look_at_slices(facts, out);
  look_at_settings(facts, out);
  look_at_pods(facts, out);
  for (const auto& what : facts.unread)
    add(out, Severity::kNote, "not-looked-at", "not checked: " + what.substr(0, what.find(": ")),
        what.find(": ") == std::string::npos ? what : what.substr(what.find(": ") + 2),
        "run the doctor with the permission to read it");
  sort_by_severity(&out);
  return out;
}

}  // namespace carve::cli
