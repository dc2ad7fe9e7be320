#include "app/control/state/pod_entry.h"

#include <utility>

#include "codec/record.h"

namespace carve::control {

std::string pod_path(const std::string& namespace_name, const std::string& name) {
  return "/api/v1/namespaces/" + namespace_name + "/pods/" + name;
}

std::optional<PodEntry> pod_entry_of(codec::ClusterPod object, const PodRequests& requests) {
  PodEntry pod;
  auto parts = requests.of(object.ask);
  if (parts) {
    pod.parts = std::move(*parts);
  } else {
    pod.request_error = parts.error().what;
  }
  pod.object = std::move(object);
  const auto& text = pod.object.record;
  if (!pod.object.node.empty() && !text.empty()) {
    auto record = codec::decode_record(text);
    if (!record) {
      pod.record_error = record.error().what;
    } else if (record->owner != pod.owner()) {
      pod.record_error =
          "record: it belongs to " + std::string(to_string(record->owner.kind)) + " " + record->owner.uid;
    } else {
      pod.record = std::move(*record);
    }
  }
  if (pod.parts.empty() && pod.request_error.empty() && !pod.record && pod.record_error.empty()) return std::nullopt;
  return pod;
}

}  // namespace carve::control
