#include "codec/cluster/cluster_pod.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "codec/dialects/pod_ask_json.h"
#include "codec/json_memory.h"
#include "codec/json_pieces.h"
#include "codec/record.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
namespace read = json_read;

/// The members that are read below. Half of a Pod's text is in other members, for example managedFields, volumes and
/// probes.
constexpr std::array<std::string_view, 7> kMetadata = {"name",        "namespace",       "uid", "labels",
                                                       "annotations", "resourceVersion", "deletionTimestamp"};
constexpr std::array<std::string_view, 9> kSpec = {
    "nodeName",         "nodeSelector",     "schedulerName",  "priority", "terminationGracePeriodSeconds",
    "preemptionPolicy", "schedulingGates", "initContainers", "containers"};
constexpr std::array<std::string_view, 6> kStatus = {"nominatedNodeName",     "startTime", "conditions", "phase",
                                                     "initContainerStatuses", "containerStatuses"};

/// The object reduced to these members.
template <std::size_t kCount>
bool keep(JsonPieces& pieces, JsonPieces::Value object, const std::array<std::string_view, kCount>& wanted,
          std::string* out) {
  char before = '{';
  std::string_view text;
  const bool whole = pieces.object(object, &text, [&](std::string_view name, JsonPieces::Value member) {
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) return true;
    const auto value = pieces.text(member);
    if (!value) return false;
    *out += std::exchange(before, ',');
    ((((*out += '"') += name) += "\":") += *value);
    return true;
  });
  *out += before == '{' ? "{}" : "}";
  return whole;
}

/// The Pod reduced to these members; nullopt: the text is not in the API server's form, and the caller must parse all
/// of it.
std::optional<std::string> what_is_read(std::string_view text) {
  JsonPieces pieces(text);
  std::string out;
  out.reserve(text.size() + 64);
  char before = '{';
  const bool whole = pieces.object([&](std::string_view name, JsonPieces::Value value) {
    const bool metadata = name == "metadata";
    const bool spec = name == "spec";
    if (!metadata && !spec && name != "status") return true;
    out += std::exchange(before, ',');
    (((out += '"') += name) += "\":");
    if (metadata) return keep(pieces, value, kMetadata, &out);
    return spec ? keep(pieces, value, kSpec, &out) : keep(pieces, value, kStatus, &out);
  });
  out += before == '{' ? "{}" : "}";
  return whole ? std::optional(std::move(out)) : std::nullopt;
}

json::object texts(const std::map<std::string, std::string>& all) {
  json::object object;
  for (const auto& [key, value] : all) object[key] = value;
  return object;
}

bool any_started(const json::value& pod) {
  for (const char* path : {"status.initContainerStatuses", "status.containerStatuses"}) {
    const auto& list = read::list(pod, path);
    if (std::any_of(list.begin(), list.end(), [](const json::value& status) {
          return read::at(status, "state.running") != nullptr || read::at(status, "state.terminated") != nullptr ||
                 read::number(status, "restartCount") > 0;
        }))
      return true;
  }
  return false;
}

/// The digits of "2026-01-01T23:59:59Z" as one number, for comparison only.
std::int64_t moment(const std::string& rfc3339) {
  std::int64_t number = 0;
  for (const char c : rfc3339.substr(0, 19)) {
    if (c >= '0' && c <= '9') number = number * 10 + (c - '0');
  }
  return number;
}

bool was_refused(const json::value& pod) {
  const auto& conditions = read::list(pod, "status.conditions");
  return std::any_of(conditions.begin(), conditions.end(), [](const json::value& condition) {
    return read::text(condition, "type") == "PodScheduled" && read::text(condition, "status") == "False" &&
           read::text(condition, "reason") == "Unschedulable";
  });
}

}  // namespace

Result<ClusterPod> parse_cluster_pod(std::string_view text) {
  const auto shorter = what_is_read(text);
  const std::string_view read_of = shorter ? std::string_view(*shorter) : text;
  read::Memory memory(read_of);
  CARVE_TRY(const auto value, read::parse_in(memory, read_of, "Pod"));
  ClusterPod pod;
  CARVE_TRY(pod.ask, pod_ask_from(value));
  if (pod.ask.name.empty() || pod.ask.uid.empty())
    return fail(Code::kInvalidArgument, "Pod: metadata.name or metadata.uid is missing");
  pod.version = read::text(value, "metadata.resourceVersion");
  pod.record = read::text_named(read::at(value, "metadata.annotations"), kRecordAnnotation);
  pod.node = read::text(value, "spec.nodeName");
  pod.scheduler = read::text(value, "spec.schedulerName");
  pod.nominated = read::text(value, "status.nominatedNodeName");
  pod.priority = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(read::number(value, "spec.priority"), INT32_MIN, INT32_MAX));
  pod.started_at = moment(read::text(value, "status.startTime"));
  if (read::at(value, "spec.terminationGracePeriodSeconds") != nullptr)
    pod.grace = std::clamp<std::int64_t>(read::number(value, "spec.terminationGracePeriodSeconds"), 0, 86'400);
  pod.never_preempts = read::text(value, "spec.preemptionPolicy") == "Never";
  pod.refused = was_refused(value);
  pod.mirror = pod.ask.annotations.contains("kubernetes.io/config.mirror");
  const auto phase = read::text(value, "status.phase");
  pod.ended = phase == "Succeeded" || phase == "Failed";
  pod.deleting = !read::text(value, "metadata.deletionTimestamp").empty();
  pod.gated = !read::list(value, "spec.schedulingGates").empty();
  pod.started = any_started(value);
  return pod;
}

std::string binding_body(const ClusterPod& pod, std::string_view node,
                         const std::map<std::string, std::string>& annotations) {
  return json::serialize(json::object{
      {"apiVersion", "v1"},
      {"kind", "Binding"},
      {"metadata", json::object{{"name", pod.ask.name},
                                {"namespace", pod.ask.namespace_name},
                                {"uid", pod.ask.uid},
                                {"annotations", texts(annotations)}}},
      {"target",
       json::object{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", json::string_view(node.data(), node.size())}}}});
}

std::string annotations_patch(const ClusterPod& pod, const std::map<std::string, std::string>& annotations) {
  return json::serialize(json::object{{"metadata", json::object{{"uid", pod.ask.uid},
                                                                {"resourceVersion", pod.version},
                                                                {"annotations", texts(annotations)}}}});
}

}  // namespace carve::codec
