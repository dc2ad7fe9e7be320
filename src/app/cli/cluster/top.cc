#include "app/cli/cluster/top.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/cells.h"
#include "app/cli/table.h"

namespace carve::cli {
namespace {

void add_node(const NodeView& node, std::vector<std::vector<std::string>>* rows) {
  if (!node.view) {
    rows->push_back({node.node, "?", node.error});
    return;
  }
  for (const auto& card : node.view->cards) {
    const auto id = card.card.id.str();
    rows->push_back({node.node, short_uuid(id), card.card.model, used_cell(card.used, card.card.memory), "",
                     fmt::format("{} %", card.utilization_percent),
                     card.card.health.ok ? "" : "UNHEALTHY: " + card.card.health.reason});
    for (const auto& slice : node.view->slices) {
      for (const auto& held : slice.cards) {
        if (held.card != id) continue;
        rows->push_back({"", "", "  " + clipped(slice.name.empty() ? slice.id : slice.name, 48),
                         used_cell(held.used, held.limit), share_cell(slice, held),
                         fmt::format("{:.1f} %", held.delivered_percent), slice.state});
      }
    }
    for (const auto& process : card.foreign)
      rows->push_back({"", "", fmt::format("  process {} outside any slice", process.pid), memory_cell(process.memory),
                       "", fmt::format("{} %", process.sm_percent), "foreign"});
  }
}

}  // namespace

std::string render_cluster_top(const std::vector<NodeView>& nodes) {
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "CARD", "MODEL / SLICE", "MEMORY USED / LIMIT", "COMPUTE REQUESTED", "DELIVERED", "STATE"}};
  for (const auto& node : nodes) add_node(node, &rows);
  return aligned(rows, {3, 5}, "");
}

}  // namespace carve::cli
