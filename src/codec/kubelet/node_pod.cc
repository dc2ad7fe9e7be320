#include "codec/kubelet/node_pod.h"

#include <boost/json.hpp>

namespace carve::codec {
namespace {

namespace json = boost::json;

const json::value* member(const json::value* value, std::string_view key) {
  const auto* object = value == nullptr ? nullptr : value->if_object();
  return object == nullptr ? nullptr : object->if_contains(json::string_view(key.data(), key.size()));
}

std::string text(const json::value* value, std::string_view key) {
  const auto* found = member(value, key);
  const auto* string = found == nullptr ? nullptr : found->if_string();
  return string == nullptr ? std::string() : std::string(string->data(), string->size());
}

}  // namespace

Result<NodePod> parse_node_pod(std::string_view object) {
  json::parse_options options;
  options.max_depth = 64;
  json::error_code error;
  const json::value value = json::parse(json::string_view(object.data(), object.size()), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, "Pod: no JSON: " + error.message());
  const auto* metadata = member(&value, "metadata");
  const auto* annotations = member(metadata, "annotations");
  NodePod pod;
  pod.space = text(metadata, "namespace");
  pod.name = text(metadata, "name");
  pod.uid = text(metadata, "uid");
  if (pod.name.empty() || pod.uid.empty())
    return fail(Code::kInvalidArgument, "Pod: without metadata.name or metadata.uid");
  pod.mirror = text(annotations, "kubernetes.io/config.mirror");
  pod.record = text(annotations, kRecordAnnotation);
  pod.node = text(member(&value, "spec"), "nodeName");
  const auto phase = text(member(&value, "status"), "phase");
  pod.ended = phase == "Succeeded" || phase == "Failed";
  return pod;
}

}  // namespace carve::codec
