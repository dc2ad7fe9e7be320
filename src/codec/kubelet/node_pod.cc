#include "codec/kubelet/node_pod.h"

#include <boost/json.hpp>
#include <map>

#include "codec/claims/elastic_objects.h"
#include "codec/dialects/dialect.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
using json_read::text;

namespace read = json_read;

/// A claim's name within the pod -> the object's name; the pod's status has generated names.
std::map<std::string, std::string> claim_names(const json::value& pod) {
  std::map<std::string, std::string> names;
  for (const auto& claim : read::list(pod, "spec.resourceClaims"))
    names[text(claim, "name")] = text(claim, "resourceClaimName");
  for (const auto& claim : read::list(pod, "status.resourceClaimStatuses"))
    names[text(claim, "name")] = text(claim, "resourceClaimName");
  return names;
}

std::vector<PodClaimUse> claims_of(const json::value& pod) {
  const auto names = claim_names(pod);
  std::vector<PodClaimUse> uses;
  for (const char* list : {"spec.initContainers", "spec.containers"}) {
    for (const auto& container : read::list(pod, list)) {
      for (const auto& use : read::list(container, "resources.claims")) {
        const auto found = names.find(text(use, "name"));
        if (found != names.end() && !found->second.empty())
          uses.push_back({found->second, text(container, "name"), text(use, "request")});
      }
    }
  }
  // Extended resources through DRA: a claim that the scheduler created for the pod.
  const auto made = text(pod, "status.extendedResourceClaimStatus.resourceClaimName");
  for (const auto& use : read::list(pod, "status.extendedResourceClaimStatus.requestMappings")) {
    if (!made.empty()) uses.push_back({made, text(use, "containerName"), text(use, "requestName")});
  }
  return uses;
}

std::string asks_without_slots(const json::value& pod) {
  std::string found;
  for (const char* list : {"spec.initContainers", "spec.containers"}) {
    for (const auto& container : read::list(pod, list)) {
      for (const char* kind : {"resources.limits", "resources.requests"}) {
        const auto* resources = read::at(container, kind);
        if (resources == nullptr || !resources->is_object()) continue;
        for (const auto& [name, value] : resources->get_object()) {
          if (std::string_view(name) == kSlots) return {};
          if (value == "0") continue;
          if (found.empty() && owner_of(std::string_view(name)) != nullptr) found = name;
        }
      }
    }
  }
  return found;
}

/// The kubelet names the resource in its message: "Allocate failed due to no healthy devices present; cannot allocate
/// unhealthy devices elasticgpu.io/slot, which is unexpected".
std::string slot_rejected(const json::value& pod) {
  if (text(pod, "status.phase") != "Failed" || text(pod, "status.reason") != "UnexpectedAdmissionError") return {};
  const auto said = text(pod, "status.message");
  return said.find(kSlots) == std::string::npos ? std::string() : said;
}

/// From the runtime's message, which the kubelet passes on: "unresolvable CDI devices <name>".
std::vector<std::string> unresolved_of(const json::value& pod) {
  std::vector<std::string> containers;
  for (const char* list : {"status.initContainerStatuses", "status.containerStatuses"}) {
    for (const auto& status : read::list(pod, list)) {
      const auto said = text(status, "state.waiting.message");
      if (said.find("unresolvable CDI devices") != std::string::npos &&
          said.find(kSliceDeviceKind) != std::string::npos)
        containers.push_back(text(status, "name"));
    }
  }
  return containers;
}

std::vector<std::string> with_elastic_claims(const json::value* annotations) {
  std::vector<std::string> containers;
  const auto* all = annotations == nullptr ? nullptr : annotations->if_object();
  if (all == nullptr) return containers;
  for (const auto& [key, claim] : *all) {
    if (const auto container = container_with_claim({key.data(), key.size()})) containers.emplace_back(*container);
  }
  return containers;
}

}  // namespace

Result<NodePod> parse_node_pod(std::string_view object) {
  CARVE_TRY(const auto value, read::parse(object, "Pod"));
  NodePod pod;
  pod.namespace_name = text(value, "metadata.namespace");
  pod.name = text(value, "metadata.name");
  pod.uid = text(value, "metadata.uid");
  if (pod.name.empty() || pod.uid.empty())
    return fail(Code::kInvalidArgument, "Pod: metadata.name or metadata.uid is missing");
  const auto* annotations = json_read::at(value, "metadata.annotations");
  pod.mirror = json_read::text_named(annotations, "kubernetes.io/config.mirror");
  pod.record = json_read::text_named(annotations, kRecordAnnotation);
  pod.node = text(value, "spec.nodeName");
  const auto phase = text(value, "status.phase");
  pod.ended = phase == "Succeeded" || phase == "Failed";
  pod.deleting = !text(value, "metadata.deletionTimestamp").empty();
  pod.pending = phase == "Pending" || phase.empty();
  pod.claims = claims_of(value);
  pod.by_elastic_claim = with_elastic_claims(annotations);
  pod.slot_rejected = slot_rejected(value);
  pod.started = text(value, "status.startTime");
  if (!pod.mirror.empty()) pod.asks_without_slots = asks_without_slots(value);
  pod.unresolved = unresolved_of(value);
  return pod;
}

}  // namespace carve::codec
