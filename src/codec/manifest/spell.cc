#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "codec/admission/answer.h"
#include "codec/json_read.h"
#include "codec/manifest/manifest_object.h"

namespace carve::codec::manifest {
namespace {

using json_read::json_text;

constexpr std::string_view kDriver = "gpu.elasticgpu.io";
constexpr std::size_t kLongestName = 63;

/// One pod on its way to another spelling.
struct Pod {
  ManifestObject& object;
  const PodTemplate& pod;
  std::vector<PartRequest> parts;
  std::map<std::string, json::object*> containers;
  std::map<std::string, std::string> pointers;  // of the containers, by their names
};

/// Why the part cannot be said in a spelling that has memory in MiB, compute and a number of cards; empty: it can.
std::string special(const Request& request) {
  if (request.memory.is_percent() && !request.whole) return "its memory is a part of the card's";
  if (!request.constraints.model.empty()) return "it names models of cards";
  if (!request.constraints.cards.empty() || !request.constraints.not_cards.empty()) return "it names single cards";
  if (request.constraints.exclusive && !request.whole) return "it wants no other slice on the card";
  if (request.share == ShareClass::kNode) {
    return fmt::format("its share follows the node's policy for {}; state {}: fixed, burst or besteffort",
                       request.dialect, kShareAnnotation);
  }
  if (!request.whole && request.memory.bytes().count() % Bytes::mib(1).count() != 0)
    return "its memory is no whole MiB";
  return {};
}

/// The name of an object for one container.
std::string name_for(const ManifestObject& object, const std::string& container) {
  std::string name = object.name();
  while (name.ends_with('-')) name.pop_back();
  name = name.empty() ? container : name + "-" + container;
  if (name.size() > kLongestName) name.resize(kLongestName);
  while (name.ends_with('-') || name.ends_with('.')) name.pop_back();
  return name;
}

/// Metadata for an object beside this one.
json::object metadata_for(const ManifestObject& object, const std::string& name) {
  json::object metadata{{"name", name}};
  if (const auto* own = object.value.if_contains("metadata")) {
    if (const auto space = json_read::text(*own, "namespace"); !space.empty()) metadata["namespace"] = space;
  }
  return metadata;
}

/// Removes all names of all dialects from limits and requests.
void remove_names(json::object& container) {
  auto* resources = object_at(container, "resources");
  if (resources == nullptr) return;
  for (const char* member : {"limits", "requests"}) {
    auto* amounts = object_at(*resources, member);
    if (amounts == nullptr) continue;
    std::vector<std::string> gone;
    for (const auto& one : *amounts) {
      if (!dialects_with(std::string(one.key())).empty()) gone.emplace_back(one.key());
    }
    for (const auto& one : gone) amounts->erase(one);
    if (amounts->empty()) resources->erase(member);
  }
}

/// Whether all parts agree on what an annotation of the pod says for all of them.
template <class Word>
bool agree(const std::vector<PartRequest>& parts, const Word& word) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const PartRequest& part) { return word(part.request) == word(parts.front().request); });
}

void put_amounts(const Request& request, json::object* amounts) {
  for (const auto& [name, amount] : native_amounts(request)) (*amounts)[json_text(name)] = amount;
}

void set_native(Pod& pod, const PartRequest& part) {
  auto& container = *pod.containers[part.part];
  remove_names(container);
  put_amounts(part.request, &made_object(made_object(container, "resources"), "limits"));
}

/// What native amounts mean without an annotation.
ShareClass usual_share(const Request& request) {
  return request.compute.is_none() ? ShareClass::kBestEffort : ShareClass::kBurst;
}

std::string to_native(Pod& pod) {
  std::vector<PartRequest> slices;
  for (const auto& part : pod.parts) {
    if (!part.request.whole) slices.push_back(part);
  }
  const bool usual = std::all_of(slices.begin(), slices.end(), [](const PartRequest& part) {
    return part.request.share == usual_share(part.request);
  });
  if (!usual && !agree(slices, [](const Request& one) { return one.share; }))
    return "its containers have different share classes, and an annotation of the pod holds for all of them";
  if (!agree(pod.parts, [](const Request& one) { return one.priority; }))
    return "its containers have different priority classes, and an annotation of the pod holds for all of them";
  const bool capped = std::any_of(slices.begin(), slices.end(), [](const PartRequest& part) {
    return part.request.ceiling != CoreShare::whole();
  });
  if (capped && !agree(slices, [](const Request& one) { return one.ceiling; }))
    return "its containers have different limits of compute, and an annotation of the pod holds for all of them";
  for (const auto& part : pod.parts) set_native(pod, part);
  const auto priority = pod.parts.front().request.priority;
  if (usual && !capped && priority == PriorityClass::kStandard) return {};
  auto& annotations = made_object(made_object(pod.pod.value, "metadata"), "annotations");
  if (!usual) annotations[json_text(kShareAnnotation)] = json_text(to_string(slices.front().request.share));
  if (capped)
    annotations[json_text(kCoreLimitAnnotation)] = std::to_string(slices.front().request.ceiling.hundredths());
  if (priority != PriorityClass::kStandard)
    annotations[json_text(kPriorityAnnotation)] = json_text(to_string(priority));
  return {};
}

/// ShareConfig in the parameters of a claim; null: the defaults are meant.
json::value share_config(const Request& request) {
  const bool capped = request.ceiling != CoreShare::whole();
  if (request.whole || (request.share == ShareClass::kBurst && request.priority == PriorityClass::kStandard && !capped))
    return nullptr;
  json::object parameters{{"apiVersion", "gpu.elasticgpu.io/v1"},
                          {"kind", "ShareConfig"},
                          {"shareClass", json_text(to_string(request.share))},
                          {"priorityClass", json_text(to_string(request.priority))}};
  if (capped) parameters["coreLimit"] = request.ceiling.hundredths();
  return json::object{
      {"requests", json::array{"gpu"}},
      {"opaque", json::object{{"driver", json_text(kDriver)}, {"parameters", std::move(parameters)}}}};
}

json::value claim_template(const ManifestObject& object, const std::string& name, const Request& request) {
  json::object exactly{{"deviceClassName", json_text(kDriver)}};
  if (request.count > 1) exactly["count"] = request.count;
  if (!request.whole) {
    // A device's share of compute is at least 1.
    const auto cores = std::max(request.compute.share().hundredths(), 1U);
    exactly["capacity"] = json::object{
        {"requests", json::object{{"memory", fmt::format("{}Mi", request.memory.bytes().whole_mib())},
                                  {"cores", std::to_string(cores)}}}};
  }
  json::object devices{{"requests", json::array{json::object{{"name", "gpu"}, {"exactly", std::move(exactly)}}}}};
  if (auto config = share_config(request); !config.is_null()) devices["config"] = json::array{std::move(config)};
  return json::object{{"apiVersion", "resource.k8s.io/v1"},
                      {"kind", "ResourceClaimTemplate"},
                      {"metadata", metadata_for(object, name)},
                      {"spec", json::object{{"spec", json::object{{"devices", std::move(devices)}}}}}};
}

void add_to(json::object& object, std::string_view list, json::value value) {
  auto& all = object[json_text(list)];
  if (!all.is_array()) all = json::array();
  all.as_array().push_back(std::move(value));
}

std::string to_dra(Pod& pod, std::vector<json::value>* objects) {
  for (const auto& part : pod.parts) {
    if (part.request.compute.is_tflops()) return "it requests TFLOPS, and a claim's compute is in hundredths of a card";
    const bool shares = std::any_of(pod.parts.begin(), pod.parts.end(), [&](const PartRequest& other) {
      return other.part != part.part && !part.together.empty() && other.together == part.together;
    });
    if (shares) return fmt::format("its containers share cards, as {} has it", part.request.dialect);
  }
  auto& spec = made_object(pod.pod.value, "spec");
  for (const auto& part : pod.parts) {
    auto& container = *pod.containers[part.part];
    remove_names(container);
    const auto name = name_for(pod.object, part.part);
    objects->push_back(claim_template(pod.object, name, part.request));
    add_to(spec, "resourceClaims", json::object{{"name", part.part}, {"resourceClaimTemplateName", name}});
    add_to(made_object(container, "resources"), "claims", json::object{{"name", part.part}});
  }
  return {};
}

/// The provisioner whose promise is this share.
std::string_view provisioner_for(const Request& request) {
  if (request.whole) return "physical";
  return request.share == ShareClass::kFixed ? "vcuda" : "gpushare";
}

std::string why_no_claim(const Pod& pod, const PartRequest& part) {
  const Request& request = part.request;
  if (request.count > 1 && request.compute.is_tflops())
    return fmt::format("container {}: a claim of several cards states compute in hundredths", part.part);
  if (!request.whole && request.share == ShareClass::kBurst) {
    return fmt::format("container {}: no provisioner promises the share class burst; state {}: fixed or besteffort",
                       part.part, kShareAnnotation);
  }
  if (request.priority != PriorityClass::kStandard)
    return fmt::format("container {}: claims have no priority class", part.part);
  if (request.ceiling != CoreShare::whole())
    return fmt::format("container {}: claims have no limit of compute beyond their cores", part.part);
  const auto* spec = pod.object.value.if_contains("spec");
  const auto replicas = spec == nullptr ? 0 : json_read::number(*spec, "replicas");
  if (replicas > 1)
    return fmt::format("spec.replicas is {}, and a claim is for one pod; --to dra makes one per pod", replicas);
  return {};
}

std::string to_claims(Pod& pod, std::vector<json::value>* objects) {
  for (const auto& part : pod.parts) {
    if (auto why = why_no_claim(pod, part); !why.empty()) return why;
  }
  std::set<std::string_view> classes;
  for (const auto& part : pod.parts) {
    const auto provisioner = provisioner_for(part.request);
    const auto class_name = fmt::format("carve-{}", provisioner);
    if (classes.insert(provisioner).second) {
      objects->push_back(json::object{{"apiVersion", "elasticgpu.io/v1alpha1"},
                                      {"kind", "ElasticGPUClass"},
                                      {"metadata", json::object{{"name", class_name}}},
                                      {"provisioner", fmt::format("elasticgpu.io/{}", provisioner)}});
    }
    json::object amounts;
    put_amounts(part.request, &amounts);
    const auto name = name_for(pod.object, part.part);
    objects->push_back(json::object{{"apiVersion", "elasticgpu.io/v1alpha1"},
                                    {"kind", "ElasticGPUClaim"},
                                    {"metadata", metadata_for(pod.object, name)},
                                    {"spec", json::object{{"elasticGPUClassName", class_name},
                                                          {"resources", json::object{{"requests", amounts}}}}}});
    remove_names(*pod.containers[part.part]);
    made_object(made_object(pod.pod.value, "metadata"), "annotations")["egpuc.elasticgpu.io/" + part.part] = name;
  }
  return {};
}

/// Only what the old dialect alone reads; nodes and quotas do not.
void spell_pod(ManifestObject& object, const PodTemplate& one, const DialectSettings& settings, Spelling to,
               std::vector<json::value>* objects) {
  const auto ask = pod_of(one);
  if (!ask) return;  // reported by the reading that follows
  const auto parts = requests_of(*ask, settings);
  if (!parts || parts->empty()) return;
  Pod pod{object, one, *parts, {}, {}};
  for (const char* list : {"initContainers", "containers"}) {
    for (const auto& [container, pointer] : objects_in(*object_at(one.value, "spec"), list)) {
      const auto name = json_read::text(json::value(*container), "name");
      pod.containers[name] = container;
      pod.pointers[name] = one.pointer + "/spec" + pointer;
    }
  }
  const bool native = std::all_of(parts->begin(), parts->end(), [](const PartRequest& part) {
    return part.request.dialect == native_dialect().name;
  });
  if (to == Spelling::kNative && native) return;
  for (const auto& part : *parts) {
    if (const auto why = special(part.request); !why.empty())
      return object.wrong(pod.pointers[part.part],
                          fmt::format("container {}: its request stays as it is: {}", part.part, why));
  }
  const auto why = to == Spelling::kNative ? to_native(pod)
                   : to == Spelling::kDra  ? to_dra(pod, objects)
                                           : to_claims(pod, objects);
  if (!why.empty()) return object.wrong(one.pointer, "its requests stay as they are: " + why);
  for (const auto& part : *parts) {
    object.repaired(pod.pointers[part.part],
                    fmt::format("container {}: {} in the spelling of {}; now {}", part.part, to_human(part.request),
                                part.request.dialect,
                                to == Spelling::kNative ? "elasticgpu.io/gpu-memory, gpu-core, gpu"
                                : to == Spelling::kDra  ? "a ResourceClaimTemplate"
                                                        : "an ElasticGPUClaim"));
  }
}

}  // namespace

std::vector<json::value> spell(ManifestObject& object, const DialectSettings& settings, Spelling to) {
  std::vector<json::value> objects;
  for (const auto& pod : templates_of(object)) spell_pod(object, pod, settings, to, &objects);
  return objects;
}

}  // namespace carve::codec::manifest
