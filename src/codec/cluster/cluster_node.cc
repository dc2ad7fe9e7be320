#include "codec/cluster/cluster_node.h"

#include <charconv>

#include "codec/json_read.h"

namespace carve::codec {

namespace read = json_read;

Result<ClusterNode> parse_cluster_node(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "Node"));
  ClusterNode node;
  node.name = read::text(value, "metadata.name");
  if (node.name.empty()) return fail(Code::kInvalidArgument, "Node: without metadata.name");
  const auto* labels = read::at(value, "metadata.labels");
  if (labels != nullptr && labels->is_object()) {
    for (const auto& [key, label] : labels->get_object()) node.labels[std::string(key)] = read::text_of(&label);
  }
  const auto slots = read::text_named(read::at(value, "status.allocatable"), "elasticgpu.io/slot");
  (void)std::from_chars(slots.data(), slots.data() + slots.size(), node.slots);
  return node;
}

}  // namespace carve::codec
