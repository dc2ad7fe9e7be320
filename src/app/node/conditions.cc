#include "app/node/conditions.h"

#include <fmt/format.h>

namespace carve::node {
namespace {

codec::NodeCondition condition(const char* type, const std::string& cause, const char* reason,
                               const char* fine, const char* fix) {
  if (cause.empty()) return {type, false, fine, ""};
  return {type, true, reason, fmt::format("{}; {}", cause, fix)};
}

std::string gpu_cause(const NodeTroubles& troubles, GpuState state) {
  if (troubles.gpu != state || troubles.gpu_passing) return {};
  return troubles.gpu_reason.empty() ? std::string("the driver is ") + to_string(state)
                                     : troubles.gpu_reason;
}

codec::NodeCondition runtime_condition(const RuntimeVerdict& runtime) {
  const bool without = runtime.cdi == RuntimeVerdict::Cdi::kWithout;
  return {"RuntimeWithoutCDI", without, runtime.reason.empty() ? "RuntimeNotAsked" : runtime.reason,
          runtime.message};
}

std::string unhealthy_cards(const std::vector<Card>& cards) {
  std::string text;
  for (const auto& card : cards) {
    if (!card.health.ok)
      text +=
          fmt::format("{}card {}: {}", text.empty() ? "" : "; ", card.id.str(), card.health.reason);
  }
  return text;
}

std::string unresolved_cause(const NodeFacts& facts) {
  if (facts.unresolved.empty()) return {};
  return fmt::format(
      "{} container{} wait{} for a CDI device that the container runtime did not find; the first is {} "
      "({} since the agent started)",
      facts.unresolved.size(), facts.unresolved.size() == 1 ? "" : "s",
      facts.unresolved.size() == 1 ? "s" : "", facts.unresolved.front(), facts.unresolved_seen);
}

}  // namespace

std::vector<codec::NodeCondition> conditions_of(const NodeFacts& facts) {
  const auto& troubles = facts.troubles;
  return {
      runtime_condition(facts.runtime),
      condition("GPUDriverAbsent", gpu_cause(troubles, GpuState::kAbsent), "DriverAbsent",
                "DriverAnswers",
                "running pods keep their limits, nothing new starts; install or load the driver until "
                "nvidia-smi on the host lists the cards"),
      condition("GPUDriverHanging", gpu_cause(troubles, GpuState::kHanging), "DriverHanging",
                "DriverAnswers",
                "running pods keep their limits, nothing new starts; check the kernel log for XIDs, then "
                "reset the card or reboot the node"),
      condition("GPUCardUnhealthy", unhealthy_cards(facts.cards), "CardUnhealthy", "CardsHealthy",
                "nothing new starts on it; see the GPU objects for the pods on it, and docs/health.md"),
      condition("GPUArbiterAway", troubles.arbiter, "ArbiterAway", "ArbiterAnswers",
                "running pods keep their last rate, nothing new starts; check the pod of DaemonSet "
                "carve-arbiter on this node"),
      condition("GPUJournalFailing", troubles.journal, "JournalFailing", "JournalWritten",
                "nothing new starts until the journal can be written; free space on the disk of the "
                "agent's state folder (/var/lib/carve)"),
      condition("GPULibraryMissing", troubles.library, "LibraryMissing", "LibraryInstalled",
                "only whole cards can start without libcarve; reinstall the agent's image"),
      condition("GPUSlicesNotPublished", facts.not_published, "WriteRefused", "Published",
                "apply deploy/agent-rbac.yaml, deploy/agent-policy.yaml and deploy/crds of this release"),
      condition("GPUStartsRefused", facts.refused, "StartRefused", "NothingRefused",
                "see the events of the pods or, if no pod is named, the kubelet's log on this node"),
      condition("GPUDevicesUnresolved", unresolved_cause(facts), "DeviceNotResolved",
                "DevicesResolved",
                "add the agent's CDI folder to cdi_spec_dirs of the container runtime, then re-create the "
                "pod"),
      condition("GPUTotalsWithheld", facts.withheld, "NameIsMapped", "TotalsSet",
                "remove the name from the agent's --totals, or extendedResourceName from the "
                "DeviceClass: only one of the two can serve a name"),
      condition("ConflictingPlugin", facts.conflicting, "NameServedTwice", "NamesAreOurs",
                "pods that request the name would also get that plugin's cards; remove that plugin from this node, or "
                "the name from Carve (dialects.nvidia in ConfigMap carve-cluster)"),
  };
}

codec::NodeCondition leaving_condition(bool leaving) {
  const std::string type(codec::kAgentLeaving);
  if (!leaving) return {type, false, "AgentServes", ""};
  return {type, true, "AgentToldToEnd",
          "the agent is being replaced or removed; running pods keep their cards, and no pod with cards is bound here "
          "until the next agent serves; if this persists, check the pod of DaemonSet carve-agent on this node"};
}

}  // namespace carve::node
