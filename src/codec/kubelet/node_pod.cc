#include "codec/kubelet/node_pod.h"

#include <boost/json.hpp>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
using json_read::text;

}  // namespace

Result<NodePod> parse_node_pod(std::string_view object) {
  json::parse_options options;
  options.max_depth = 64;
  json::error_code error;
  const json::value value =
      json::parse(json::string_view(object.data(), object.size()), error, {}, options);
  if (error) return fail(Code::kInvalidArgument, "Pod: no JSON: " + error.message());
  NodePod pod;
  pod.space = text(value, "metadata.namespace");
  pod.name = text(value, "metadata.name");
  pod.uid = text(value, "metadata.uid");
  if (pod.name.empty() || pod.uid.empty())
    return fail(Code::kInvalidArgument, "Pod: without metadata.name or metadata.uid");
  const auto* annotations = json_read::at(value, "metadata.annotations");
  pod.mirror = json_read::text_named(annotations, "kubernetes.io/config.mirror");
  pod.record = json_read::text_named(annotations, kRecordAnnotation);
  pod.node = text(value, "spec.nodeName");
  const auto phase = text(value, "status.phase");
  pod.ended = phase == "Succeeded" || phase == "Failed";
  return pod;
}

}  // namespace carve::codec
