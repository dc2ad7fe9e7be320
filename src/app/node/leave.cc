#include "app/node/leave.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "app/node/conditions.h"
#include "app/node/gpu_publisher.h"
#include "app/node/labels.h"
#include "app/node/node_status.h"
#include "app/node/totals.h"
#include "codec/kubelet/node_pod.h"
#include "codec/node/gpu_object.h"
#include "codec/node/node_object.h"
#include "codec/node/plugin_conflict.h"

namespace carve::node {
namespace {

// The second one is control's: app/control/schedule/requeuer.h.
constexpr std::array<const char*, 3> kAnnotations = {NodeStatus::kTouched, "elasticgpu.io/slices-free", kTotalsSet};

constexpr std::string_view kDriver = R"("gpu.elasticgpu.io")";  // in a claim's allocation

codec::NodeChanges labels_to_remove(const codec::NodeObject& node) {
  codec::NodeChanges labels;
  for (const auto& [key, value] : node.labels) {
    if (is_agents_label(key)) labels[key] = std::nullopt;
  }
  return labels;
}

codec::NodeChanges annotations_to_remove(const codec::NodeObject& node) {
  codec::NodeChanges annotations;
  for (const auto* key : kAnnotations) {
    if (node.annotations.contains(key)) annotations[key] = std::nullopt;
  }
  return annotations;
}

std::vector<std::string> conditions_to_remove(const codec::NodeObject& node) {
  std::vector<std::string> types;
  for (const auto& one : conditions_of({})) {
    if (node.conditions.contains(one.type)) types.push_back(one.type);
  }
  if (const std::string leaving(codec::kAgentLeaving); node.conditions.contains(leaving)) types.push_back(leaving);
  return types;
}

/// The totals to remove. A name that another device plugin serves has that plugin's number, so it stays. The condition
/// ConflictingPlugin names it.
codec::NodeChanges totals_to_remove(const codec::NodeObject& node, const std::vector<std::string>& totals) {
  const auto conflict = node.conditions.find(std::string(codec::kConflictingPlugin));
  const auto others = conflict != node.conditions.end() && conflict->second.on
                          ? codec::names_in_conflict(conflict->second.message)
                          : std::vector<std::string>();
  codec::NodeChanges removed;
  auto names = totals_set_on(node);  // also those of an agent with other settings
  names.insert(totals.begin(), totals.end());
  for (const auto& name : names) {
    const bool foreign = std::find(others.begin(), others.end(), name) != others.end();
    if (!foreign && node.capacity.contains(name)) removed[name] = std::nullopt;
  }
  return removed;
}

void note(const codec::NodeChanges& changes, std::vector<std::string>* gone) {
  for (const auto& [name, value] : changes) gone->push_back(name);
}

/// Removes the GPU objects of the node. If the API server does not know the kind, there are none.
Result<void> remove_gpus(KubeApi& api, const std::string& node, std::vector<std::string>* gone) {
  const auto objects = api.list(kGpus, {{"fieldSelector", "spec.nodeName=" + node}});
  if (!objects && objects.error().code == Code::kNotFound) return {};
  if (!objects) return tl::unexpected(objects.error());
  for (const auto& text : *objects) {
    CARVE_TRY(const auto gpu, codec::parse_gpu_digest(text));
    const auto removed = api.remove(std::string(kGpus) + "/" + gpu.name);
    if (!removed && removed.error().code != Code::kNotFound) return removed;
    gone->push_back("GPU " + gpu.name);
  }
  return {};
}

/// Whether one of the pod's claims is allocated from Carve's cards. A deleted claim holds nothing.
Result<bool> claims_cards(KubeApi& api, const codec::NodePod& pod) {
  for (const auto& use : pod.claims) {
    const auto claim =
        api.get("/apis/resource.k8s.io/v1/namespaces/" + pod.namespace_name + "/resourceclaims/" + use.claim);
    if (!claim && claim.error().code != Code::kNotFound) return tl::unexpected(claim.error());
    if (claim && claim->find(kDriver) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<std::string>> holders_on(KubeApi& api, const std::string& node) {
  CARVE_TRY(const auto objects, api.list("/api/v1/pods", {{"fieldSelector", "spec.nodeName=" + node}}));
  std::vector<std::string> names;
  for (const auto& text : objects) {
    CARVE_TRY(const auto pod, codec::parse_node_pod(text));
    if (pod.ended) continue;
    CARVE_TRY(const bool claims, claims_cards(api, pod));
    if (claims || !pod.record.empty()) names.push_back(pod.namespace_name + "/" + pod.name);
  }
  return names;
}

Result<std::vector<std::string>> leave_node(KubeApi& api, const std::string& node,
                                            const std::vector<std::string>& totals) {
  const auto path = "/api/v1/nodes/" + node;
  CARVE_TRY(const auto text, api.get(path));
  CARVE_TRY(const auto there, codec::parse_node_object(text));
  std::vector<std::string> gone;
  CARVE_TRY_VOID(remove_gpus(api, node, &gone));
  if (const auto labels = labels_to_remove(there); !labels.empty()) {
    CARVE_TRY_VOID(api.patch(path, KubePatch::kMerge, codec::node_labels_patch(labels)));
    note(labels, &gone);
  }
  if (const auto removed = totals_to_remove(there, totals); !removed.empty()) {
    CARVE_TRY_VOID(api.patch(path + "/status", KubePatch::kMerge, codec::node_totals_patch(removed)));
    note(removed, &gone);
  }
  // After the totals, because one of the annotations names them.
  if (const auto annotations = annotations_to_remove(there); !annotations.empty()) {
    CARVE_TRY_VOID(api.patch(path, KubePatch::kMerge, codec::node_annotations_patch(annotations)));
    note(annotations, &gone);
  }
  // Last, because the condition ConflictingPlugin names the totals of other plugins.
  if (const auto types = conditions_to_remove(there); !types.empty()) {
    CARVE_TRY_VOID(api.patch(path + "/status", KubePatch::kStrategic, codec::node_conditions_removal(types)));
    gone.insert(gone.end(), types.begin(), types.end());
  }
  return gone;
}

}  // namespace carve::node
