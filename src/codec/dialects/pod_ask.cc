#include "codec/dialects/pod_ask.h"

#include <boost/json.hpp>

namespace carve::codec {
namespace {

namespace json = boost::json;
using Texts = std::map<std::string, std::string>;

const json::value* member(const json::value* value, std::string_view key) {
  const auto* object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr
                           : object->if_contains(json::string_view(key.data(), key.size()));
}

/// Numbers as they would be written: a quantity 4 is "4".
std::string text_of(const json::value& value) {
  if (const auto* string = value.if_string()) return {string->data(), string->size()};
  return value.is_number() ? json::serialize(value) : std::string();
}

Texts texts(const json::value* value) {
  Texts all;
  const auto* object = value == nullptr ? nullptr : value->if_object();
  if (object == nullptr) return all;
  for (const auto& entry : *object) all[std::string(entry.key())] = text_of(entry.value());
  return all;
}

Result<void> add_containers(const json::value* spec, const char* key, ContainerKind kind,
                            PodAsk* pod) {
  const auto* list = member(spec, key);
  const auto* array = list == nullptr ? nullptr : list->if_array();
  if (array == nullptr) return {};
  for (const auto& item : *array) {
    ContainerAsk container;
    const auto* name = member(&item, "name");
    container.name = name == nullptr ? std::string() : text_of(*name);
    if (container.name.empty())
      return fail(Code::kInvalidArgument, std::string("Pod: spec.") + key + ": one without a name");
    container.kind = kind;
    const auto* restart = member(&item, "restartPolicy");
    if (kind == ContainerKind::kInit && restart != nullptr && text_of(*restart) == "Always")
      container.kind = ContainerKind::kSidecar;
    const auto* resources = member(&item, "resources");
    container.requests = texts(member(resources, "requests"));
    container.limits = texts(member(resources, "limits"));
    pod->containers.push_back(std::move(container));
  }
  return {};
}

}  // namespace

Result<PodAsk> parse_pod_ask(std::string_view text) {
  json::parse_options options;
  options.max_depth = 64;
  json::error_code error;
  const json::value value =
      json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, "Pod: no JSON: " + error.message());
  if (!value.is_object()) return fail(Code::kInvalidArgument, "Pod: no JSON object");
  PodAsk pod;
  const auto* metadata = member(&value, "metadata");
  pod.labels = texts(member(metadata, "labels"));
  pod.annotations = texts(member(metadata, "annotations"));
  const auto* spec = member(&value, "spec");
  CARVE_TRY_VOID(add_containers(spec, "initContainers", ContainerKind::kInit, &pod));
  CARVE_TRY_VOID(add_containers(spec, "containers", ContainerKind::kMain, &pod));
  return pod;
}

}  // namespace carve::codec
