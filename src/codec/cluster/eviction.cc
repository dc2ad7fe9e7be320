#include "codec/cluster/eviction.h"

#include <boost/json.hpp>

namespace carve::codec {
namespace {

namespace json = boost::json;

}  // namespace

std::string eviction_body(const ClusterPod& pod, bool dry) {
  json::object options{{"preconditions", json::object{{"uid", pod.ask.uid}}}};
  if (dry) options["dryRun"] = json::array{"All"};
  return json::serialize(
      json::object{{"apiVersion", "policy/v1"},
                   {"kind", "Eviction"},
                   {"metadata", json::object{{"name", pod.ask.name}, {"namespace", pod.ask.namespace_name}}},
                   {"deleteOptions", std::move(options)}});
}

std::string nomination_patch(const ClusterPod& pod, std::string_view node) {
  json::value name = nullptr;
  if (!node.empty()) name = json::string_view(node.data(), node.size());
  return json::serialize(json::object{{"metadata", json::object{{"uid", pod.ask.uid}}},
                                      {"status", json::object{{"nominatedNodeName", std::move(name)}}}});
}

}  // namespace carve::codec
