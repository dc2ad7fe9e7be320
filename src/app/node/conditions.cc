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
  if (troubles.gpu != state) return {};
  return troubles.gpu_reason.empty() ? std::string("the driver is ") + to_string(state)
                                     : troubles.gpu_reason;
}

codec::NodeCondition runtime_condition(const RuntimeVerdict& runtime) {
  const bool without = runtime.word == RuntimeVerdict::Word::kWithout;
  return {"RuntimeWithoutCDI", without, runtime.reason.empty() ? "RuntimeNotAsked" : runtime.reason,
          runtime.message};
}

std::string sick_cards(const std::vector<Card>& cards) {
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
      "{} container{} wait{} for a CDI device that the runtime did not find, the first is {} "
      "({} seen since the agent started)",
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
                "install or load the driver so that nvidia-smi on the host lists the cards; what "
                "runs keeps its "
                "limits, nothing new starts"),
      condition("GPUDriverHanging", gpu_cause(troubles, GpuState::kHanging), "DriverHanging",
                "DriverAnswers",
                "look for XIDs in the kernel's log and reset the card or reboot the node; what "
                "runs keeps its "
                "limits, nothing new starts"),
      condition("GPUCardUnhealthy", sick_cards(facts.cards), "CardUnhealthy", "CardsHealthy",
                "nothing new starts there; the GPU objects say who is on it"),
      condition("GPUArbiterAway", troubles.arbiter, "ArbiterAway", "ArbiterAnswers",
                "see the pods of DaemonSet carve-arbiter on this node; what runs goes on at its "
                "last rate, "
                "nothing new starts"),
      condition("GPUJournalFailing", troubles.journal, "JournalFailing", "JournalWritten",
                "make room on the disk below the agent's state folder; nothing new starts until it "
                "is written"),
      condition("GPULibraryMissing", troubles.library, "LibraryMissing", "LibraryInstalled",
                "reinstall the agent's image: without libcarve only whole cards are given"),
      condition("GPUSlicesNotPublished", facts.not_published, "WriteRefused", "Published",
                "apply deploy/agent-rbac.yaml, deploy/agent-policy.yaml and deploy/crds"),
      condition("GPUStartsRefused", facts.refused, "StartRefused", "NothingRefused",
                "the events of the pods say it too, and where nobody is named the kubelet's log on this node does"),
      condition("GPUDevicesUnresolved", unresolved_cause(facts), "DeviceNotResolved",
                "DevicesResolved",
                "the runtime must watch the agent's CDI folder (cdi_spec_dirs); deleting the pod "
                "starts it anew"),
      condition("GPUTotalsWithheld", facts.withheld, "NameIsMapped", "TotalsSet",
                "remove the name from the agent's --totals, or extendedResourceName from the "
                "DeviceClass: one "
                "name has one door"),
      condition("ConflictingPlugin", facts.conflicting, "NameServedTwice", "NamesAreOurs",
                "pods that ask for it would get that plugin's cards too; take that plugin off this node, or give the "
                "name up (dialects.nvidia in ConfigMap carve-cluster)"),
  };
}

codec::NodeCondition leaving_condition(bool leaving) {
  const std::string type(codec::kAgentLeaving);
  if (!leaving) return {type, false, "AgentServes", ""};
  return {type, true, "AgentToldToEnd",
          "the agent is replaced or taken away; what runs keeps its cards, and nobody is sent here until the next "
          "agent serves: see the pods of DaemonSet carve-agent on this node"};
}

}  // namespace carve::node
