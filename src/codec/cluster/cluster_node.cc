#include "codec/cluster/cluster_node.h"

#include <charconv>

#include "codec/dialects/dialect.h"
#include "codec/json_memory.h"
#include "codec/node/node_object.h"
#include "codec/node/plugin_conflict.h"

namespace carve::codec {

namespace read = json_read;

Result<ClusterNode> parse_cluster_node(std::string_view text) {
  read::Memory memory(text);
  CARVE_TRY(const auto value, read::parse_in(memory, text, "Node"));
  ClusterNode node;
  node.name = read::text(value, "metadata.name");
  if (node.name.empty()) return fail(Code::kInvalidArgument, "Node: metadata.name is missing");
  const auto texts_at = [&](std::string_view path) {
    std::map<std::string, std::string> texts;
    const auto* object = read::at(value, path);
    if (object == nullptr || !object->is_object()) return texts;
    for (const auto& [key, text_value] : object->get_object()) texts[std::string(key)] = read::text_of(&text_value);
    return texts;
  };
  node.labels = texts_at("metadata.labels");
  node.modes = card_modes_of(node.labels, texts_at("metadata.annotations"));
  const auto slots = read::text_named(read::at(value, "status.allocatable"), kSlots);
  (void)std::from_chars(slots.data(), slots.data() + slots.size(), node.slots);
  for (const auto& [name, amount] : texts_at("status.allocatable")) {
    if (amount == "0" && owner_of(name) != nullptr) node.exhausted.push_back(name);
  }
  for (const auto& item : read::list(value, "status.addresses")) {
    if (read::text(item, "type") != "InternalIP") continue;
    node.address = read::text(item, "address");
    break;
  }
  for (const auto& item : read::list(value, "status.conditions")) {
    if (read::text(item, "status") != "True") continue;
    const auto type = read::text(item, "type");
    if (type == kAgentLeaving) node.leaving = true;
    if (type == kConflictingPlugin) node.of_others = names_in_conflict(read::text(item, "message"));
  }
  return node;
}

}  // namespace carve::codec
