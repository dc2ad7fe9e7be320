#include "codec/dialects/pod_ask.h"

#include <boost/json.hpp>

#include "codec/dialects/pod_ask_json.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
using Texts = std::map<std::string, std::string>;

/// A number as text: a quantity 4 is "4".
std::string text_of(const json::value& value) {
  return value.is_number() ? json::serialize(value) : json_read::text_of(&value);
}

Texts texts(const json::value& value, std::string_view path) {
  Texts all;
  const auto* found = json_read::at(value, path);
  const auto* object = found == nullptr ? nullptr : found->if_object();
  if (object == nullptr) return all;
  for (const auto& entry : *object) all[std::string(entry.key())] = text_of(entry.value());
  return all;
}

Result<void> add_containers(const json::value& pod_value, const std::string& path,
                            ContainerKind kind, PodAsk* pod) {
  for (const json::value& item : json_read::list(pod_value, path)) {
    ContainerAsk container;
    container.name = json_read::text(item, "name");
    if (container.name.empty())
      return fail(Code::kInvalidArgument, "Pod: " + path + ": an entry without a name");
    const bool stays = json_read::text(item, "restartPolicy") == "Always";
    container.kind = kind == ContainerKind::kInit && stays ? ContainerKind::kSidecar : kind;
    container.requests = texts(item, "resources.requests");
    container.limits = texts(item, "resources.limits");
    pod->containers.push_back(std::move(container));
  }
  return {};
}

}  // namespace

Result<PodAsk> pod_ask_from(const json::value& value) {
  if (!value.is_object()) return fail(Code::kInvalidArgument, "Pod: not a JSON object");
  PodAsk pod;
  pod.namespace_name = json_read::text(value, "metadata.namespace");
  pod.name = json_read::text(value, "metadata.name");
  pod.uid = json_read::text(value, "metadata.uid");
  pod.labels = texts(value, "metadata.labels");
  pod.annotations = texts(value, "metadata.annotations");
  pod.node_selector = texts(value, "spec.nodeSelector");
  CARVE_TRY_VOID(add_containers(value, "spec.initContainers", ContainerKind::kInit, &pod));
  CARVE_TRY_VOID(add_containers(value, "spec.containers", ContainerKind::kMain, &pod));
  return pod;
}

Result<PodAsk> parse_pod_ask(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "Pod"));
  return pod_ask_from(value);
}

}  // namespace carve::codec
