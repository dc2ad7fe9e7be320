#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "codec/admission/answer.h"
#include "codec/dialects/pod_checks.h"
#include "codec/json_read.h"
#include "codec/manifest/manifest_object.h"

namespace carve::codec::manifest {
namespace {

using json_read::json_text;

/// A version that Kubernetes no longer serves.
struct PastVersion {
  std::string_view version;
  std::string_view kind;
  std::string_view now;  // empty: its fields have changed, only its author can rewrite it
  std::string_view removed;
};
constexpr std::array kPast = {
    PastVersion{"extensions/v1beta1", "Deployment", "apps/v1", "1.16"},
    PastVersion{"extensions/v1beta1", "DaemonSet", "apps/v1", "1.16"},
    PastVersion{"extensions/v1beta1", "ReplicaSet", "apps/v1", "1.16"},
    PastVersion{"extensions/v1beta1", "NetworkPolicy", "networking.k8s.io/v1", "1.16"},
    PastVersion{"extensions/v1beta1", "Ingress", "", "1.22"},
    PastVersion{"extensions/v1beta1", "PodSecurityPolicy", "", "1.16"},
    PastVersion{"apps/v1beta1", "Deployment", "apps/v1", "1.16"},
    PastVersion{"apps/v1beta1", "StatefulSet", "apps/v1", "1.16"},
    PastVersion{"apps/v1beta2", "Deployment", "apps/v1", "1.16"},
    PastVersion{"apps/v1beta2", "DaemonSet", "apps/v1", "1.16"},
    PastVersion{"apps/v1beta2", "ReplicaSet", "apps/v1", "1.16"},
    PastVersion{"apps/v1beta2", "StatefulSet", "apps/v1", "1.16"},
    PastVersion{"batch/v2alpha1", "CronJob", "batch/v1", "1.21"},
    PastVersion{"batch/v1beta1", "CronJob", "batch/v1", "1.25"},
    PastVersion{"networking.k8s.io/v1beta1", "Ingress", "", "1.22"},
    PastVersion{"policy/v1beta1", "PodDisruptionBudget", "policy/v1", "1.25"},
    PastVersion{"rbac.authorization.k8s.io/v1beta1", "Role", "rbac.authorization.k8s.io/v1", "1.22"},
    PastVersion{"rbac.authorization.k8s.io/v1beta1", "RoleBinding", "rbac.authorization.k8s.io/v1", "1.22"},
    PastVersion{"rbac.authorization.k8s.io/v1beta1", "ClusterRole", "rbac.authorization.k8s.io/v1", "1.22"},
    PastVersion{"rbac.authorization.k8s.io/v1beta1", "ClusterRoleBinding", "rbac.authorization.k8s.io/v1", "1.22"},
    PastVersion{"apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "", "1.22"},
    PastVersion{"scheduling.k8s.io/v1beta1", "PriorityClass", "scheduling.k8s.io/v1", "1.22"},
    PastVersion{"storage.k8s.io/v1beta1", "StorageClass", "storage.k8s.io/v1", "1.22"},
};

/// Fields of the past versions that apps/v1 does not have.
constexpr std::array<std::string_view, 2> kGone = {"rollbackTo", "templateGeneration"};

void repair_comments(ManifestObject& object) {
  for (const auto& pointer : object.tree.commented) {
    if (pointer.starts_with(object.pointer))
      object.repaired(pointer.substr(object.pointer.size()), "text after // is removed: comments in YAML begin with #");
  }
}

/// `metadata: NAME`, and labels or annotations beside metadata, as published samples have them.
void repair_metadata(ManifestObject& object) {
  if (const auto* name = object.value.if_contains("metadata"); name != nullptr && name->is_string()) {
    const json::string text = name->as_string();
    object.value.at("metadata") = json::object{{"name", text}};
    object.repaired("/metadata", fmt::format("metadata is the text \"{}\"; now it is metadata.name", object.name()));
  }
  for (const char* member : {"annotations", "labels"}) {
    const auto* found = object.value.if_contains(member);
    if (found == nullptr || !found->is_object()) continue;
    const json::object beside = found->as_object();
    auto& into = made_object(made_object(object.value, "metadata"), member);
    for (const auto& one : beside)
      if (!into.contains(one.key())) into.emplace(one.key(), one.value());
    object.repaired(fmt::format("/{}", member),
                    fmt::format("{} is beside metadata; now it is metadata.{}", member, member));
    object.value.erase(member);
  }
}

/// spec.selector was optional in past versions: it was the template's labels.
void repair_selector(ManifestObject& object, json::object& spec) {
  const auto kind = object.kind();
  if (kind != "Deployment" && kind != "DaemonSet" && kind != "ReplicaSet" && kind != "StatefulSet") return;
  if (spec.contains("selector")) return;
  auto* pod = object_at(spec, "template");
  if (pod == nullptr) return;
  auto& labels = made_object(made_object(*pod, "metadata"), "labels");
  if (labels.empty()) {
    std::string name = json_read::text(json::value(object.value), "metadata.name");
    if (name.empty())
      return object.wrong("/spec", "spec.selector is missing, and so is a name from which it could follow");
    labels.emplace("app", name);
    object.repaired("/spec/template", fmt::format("the pod template has no label; added app: {}", name));
  }
  const json::object selected = labels;  // the new member may move the others
  spec.emplace("selector", json::object{{"matchLabels", selected}});
  object.repaired("/spec", "spec.selector is missing; added the labels of the pod template");
}

void repair_version(ManifestObject& object) {
  const auto kind = object.kind();
  const auto version = object.version();
  const auto past = std::find_if(kPast.begin(), kPast.end(),
                                 [&](const PastVersion& one) { return one.version == version && one.kind == kind; });
  if (past != kPast.end() && past->now.empty()) {
    return object.wrong("/apiVersion",
                        fmt::format("{} {} was removed in Kubernetes {}, and its fields changed: rewrite it", version,
                                    kind, past->removed));
  }
  if (past != kPast.end()) object.value.at("apiVersion") = json_text(past->now);
  auto* spec = object_at(object.value, "spec");
  if (past != kPast.end()) {
    object.repaired("/apiVersion",
                    fmt::format("{} {} was removed in Kubernetes {}; now {}", version, kind, past->removed, past->now));
    for (const auto gone : kGone) {
      if (spec == nullptr || !spec->contains(json_text(gone))) continue;
      spec->erase(json_text(gone));
      object.repaired("/spec", fmt::format("spec.{} is removed: {} has no such field", gone, past->now));
    }
  }
  if (spec != nullptr && (past != kPast.end() || version == "apps/v1")) repair_selector(object, *spec);
}

/// Labels, annotations and node selectors must be text.
void repair_texts(ManifestObject& object, json::object& texts, const std::string& pointer, std::string_view what) {
  for (auto& member : texts) {
    const std::string name(member.key());
    std::string inner = fmt::format("{}/{}", pointer, pointer_word(name));
    if (member.value().is_string()) continue;
    if (member.value().is_object() || member.value().is_array()) {
      object.wrong(inner, fmt::format("{} {}: a list or a mapping; text is legal", what, name));
      continue;
    }
    const auto plain = object.tree.plain.find(object.pointer + inner);
    const std::string text =
        plain != object.tree.plain.end() ? plain->second : std::string(json::serialize(member.value()));
    member.value() = json::string(text);
    object.repaired(inner,
                    fmt::format("{} {}: {} is not text; now \"{}\"", what, name, text.empty() ? "null" : text, text));
  }
}

void repair_texts_of(ManifestObject& object, json::object& holder, const std::string& pointer) {
  if (auto* metadata = object_at(holder, "metadata")) {
    if (auto* texts = object_at(*metadata, "annotations"))
      repair_texts(object, *texts, pointer + "/metadata/annotations", "annotation");
    if (auto* texts = object_at(*metadata, "labels"))
      repair_texts(object, *texts, pointer + "/metadata/labels", "label");
  }
  if (auto* spec = object_at(holder, "spec")) {
    if (auto* texts = object_at(*spec, "nodeSelector"))
      repair_texts(object, *texts, pointer + "/spec/nodeSelector", "node selector");
  }
}

/// Extended resources need limits; requests alone are refused.
void repair_limits(ManifestObject& object, json::object& container, const std::string& pointer) {
  auto* resources = object_at(container, "resources");
  const auto* found = resources == nullptr ? nullptr : object_at(*resources, "requests");
  if (found == nullptr) return;
  const json::object requests = *found;
  const std::string name = json_read::text(json::value(container), "name");
  for (const auto& member : requests) {
    const std::string resource(member.key());
    if (dialects_with(resource).empty()) continue;
    auto& limits = made_object(*resources, "limits");
    if (limits.contains(resource)) continue;
    limits.emplace(resource, member.value());
    object.repaired(fmt::format("{}/resources/requests/{}", pointer, pointer_word(resource)),
                    fmt::format("container {}: {} is only in requests; added to limits", name, resource));
  }
}

/// Slots are Carve's business: admission adds them.
void repair_slots(ManifestObject& object, json::object& container, const std::string& pointer) {
  auto* resources = object_at(container, "resources");
  if (resources == nullptr) return;
  for (const char* member : {"limits", "requests"}) {
    auto* amounts = object_at(*resources, member);
    if (amounts == nullptr || !amounts->contains(json_text(kSlots))) continue;
    amounts->erase(json_text(kSlots));
    object.repaired(fmt::format("{}/resources/{}/{}", pointer, member, pointer_word(kSlots)),
                    fmt::format("{} is removed from {}: Carve adds it", kSlots, member));
  }
}

/// cGPU has a variable that exempts a container from its limits. Carve has none: what remains would mislead its reader.
void repair_exemption(ManifestObject& object, json::object& container, const std::string& pointer) {
  constexpr std::string_view kExemption = "CGPU_DISABLE";
  auto* found = container.if_contains("env");
  auto* variables = found == nullptr ? nullptr : found->if_array();
  for (std::size_t i = variables == nullptr ? 0 : variables->size(); i-- > 0;) {
    if (json_read::text((*variables)[i], "name") != kExemption) continue;
    object.repaired(fmt::format("{}/env/{}", pointer, i),
                    fmt::format("variable {} is removed: Carve's limits have no exemption", kExemption));
    variables->erase(variables->begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void repair_carves(ManifestObject& object, json::object& holder, const std::string& pointer) {
  auto* metadata = object_at(holder, "metadata");
  auto* annotations = metadata == nullptr ? nullptr : object_at(*metadata, "annotations");
  if (annotations == nullptr) return;
  std::vector<std::string> gone;
  for (const auto& member : *annotations) {
    if (only_carve_writes(std::string(member.key()))) gone.emplace_back(member.key());
  }
  for (const auto& name : gone) {
    annotations->erase(name);
    object.repaired(fmt::format("{}/metadata/annotations/{}", pointer, pointer_word(name)),
                    fmt::format("annotation {} is removed: only Carve writes it", name));
  }
}

}  // namespace

void repair(ManifestObject& object) {
  repair_metadata(object);
  repair_comments(object);
  repair_version(object);
  const auto pods = templates_of(object);
  const bool own = !pods.empty() && pods.front().pointer.empty();
  if (!own) repair_texts_of(object, object.value, "");
  for (const auto& pod : pods) {
    repair_texts_of(object, pod.value, pod.pointer);
    repair_carves(object, pod.value, pod.pointer);
    auto* spec = object_at(pod.value, "spec");
    for (const char* list : {"initContainers", "containers"}) {
      for (const auto& [container, pointer] : objects_in(*spec, list)) {
        const std::string inner = pod.pointer + "/spec" + pointer;
        repair_slots(object, *container, inner);
        repair_limits(object, *container, inner);
        repair_exemption(object, *container, inner);
      }
    }
  }
}

}  // namespace carve::codec::manifest
