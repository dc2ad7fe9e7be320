#include "codec/cluster/installation.h"

#include <algorithm>
#include <charconv>

#include "codec/cluster/lease.h"
#include "codec/json_read.h"

namespace carve::codec {

namespace json = boost::json;
namespace read = json_read;

Result<Workload> parse_workload(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "workload"));
  Workload workload;
  workload.name = read::text(value, "metadata.name");
  if (workload.name.empty()) return fail(Code::kInvalidArgument, "workload: metadata.name is missing");
  const bool everywhere = read::at(value, "status.desiredNumberScheduled") != nullptr;
  workload.wanted = read::number(value, everywhere ? "status.desiredNumberScheduled" : "spec.replicas");
  workload.ready = read::number(value, everywhere ? "status.numberReady" : "status.readyReplicas");
  workload.updated = read::number(value, everywhere ? "status.updatedNumberScheduled" : "status.updatedReplicas");
  return workload;
}

bool is_ready(std::string_view text) {
  const auto value = read::parse(text, "object");
  if (!value) return false;
  const auto& conditions = read::list(*value, "status.conditions");
  return std::any_of(conditions.begin(), conditions.end(), [](const json::value& condition) {
    return read::text(condition, "type") == "Ready" && read::text(condition, "status") == "True";
  });
}

std::string allocatable_of(std::string_view node, std::string_view resource) {
  const auto value = read::parse(node, "Node");
  return value ? read::text_named(read::at(*value, "status.allocatable"), resource) : std::string();
}

bool labelled_with_cards(std::string_view node) {
  const auto value = read::parse(node, "Node");
  const auto* found = value ? read::at(*value, "metadata.labels") : nullptr;
  const auto* labels = found == nullptr ? nullptr : found->if_object();
  if (labels == nullptr) return false;
  return std::any_of(labels->begin(), labels->end(), [](const auto& label) {
    const std::string_view key(label.key().data(), label.key().size());
    if (key == "elasticgpu.io/gpu.count" || key == "cloud.google.com/gke-accelerator") return true;
    //   source  gpu-feature-discovery; Node Feature Discovery's pci-CLASS_VENDOR, 10de is NVIDIA
    const bool says = key == "nvidia.com/gpu.present" ||
                      (key.starts_with("feature.node.kubernetes.io/pci-") && key.ends_with("10de.present"));
    return says && read::text_of(&label.value()) == "true";
  });
}

bool has_authority(std::string_view webhook_configuration) {
  const auto value = read::parse(webhook_configuration, "webhook configuration");
  if (!value) return false;
  const auto& hooks = read::list(*value, "webhooks");
  return !hooks.empty() && std::all_of(hooks.begin(), hooks.end(), [](const json::value& hook) {
    return !read::text(hook, "clientConfig.caBundle").empty();
  });
}

PodWaits pod_waits(std::string_view pod, std::int64_t now_unix_s) {
  PodWaits waits;
  const auto value = read::parse(pod, "Pod");
  if (!value) return waits;
  const auto phase = read::text(*value, "status.phase");
  waits.pending = phase == "Pending" || phase.empty();
  // The API server sets it to the end of the grace period, not to the time of the deletion.
  waits.terminating_s = seconds_since(read::text(*value, "metadata.deletionTimestamp"), now_unix_s);
  if (!read::text(*value, "spec.nodeName").empty()) {
    waits.bound_s = seconds_since(read::text(*value, "metadata.creationTimestamp"), now_unix_s);
    for (const auto& condition : read::list(*value, "status.conditions")) {
      if (read::text(condition, "type") == "PodScheduled")
        waits.bound_s = seconds_since(read::text(condition, "lastTransitionTime"), now_unix_s);
    }
  }
  for (const auto& finalizer : read::list(*value, "metadata.finalizers"))
    waits.finalizers.emplace_back(read::text_of(&finalizer));
  return waits;
}

ServerVersion parse_server_version(std::string_view text) {
  const auto value = read::parse(text, "version");
  if (!value) return {};
  ServerVersion version;
  version.text = read::text(*value, "gitVersion");
  const auto minor = read::text(*value, "minor");  // "36"; some vendors write "36+"
  int number = -1;
  if (std::from_chars(minor.data(), minor.data() + minor.size(), number).ec == std::errc()) version.minor = number;
  return version;
}

}  // namespace carve::codec
