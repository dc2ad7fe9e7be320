#include "app/cli/slice_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "app/cli/cells.h"
#include "app/cli/table.h"
#include "app/cli/timeline.h"

namespace carve::cli {
namespace {

struct Line {
  std::string node;
  const SliceView* slice = nullptr;
  const SliceCardView* held = nullptr;
  [[nodiscard]] const std::string& name() const { return slice->name.empty() ? slice->id : slice->name; }
  [[nodiscard]] std::string key() const { return node + "/" + slice->id + "/" + held->card; }
};

bool matches(const Line& line, const std::string& filter) {
  const std::string text = line.name() + " " + line.node + " " + line.held->card + " " + line.slice->state;
  std::istringstream words(filter);
  for (std::string word; words >> word;) {
    if (text.find(word) == std::string::npos) return false;
  }
  return true;
}

std::vector<Line> lines_of(const std::vector<NodeView>& nodes, SortSlices sort, const std::string& filter) {
  std::vector<Line> lines;
  for (const auto& node : nodes) {
    if (!node.view) continue;
    for (const auto& slice : node.view->slices) {
      for (const auto& held : slice.cards) {
        Line line{node.node, &slice, &held};
        if (matches(line, filter)) lines.push_back(std::move(line));
      }
    }
  }
  const auto amount = [](Bytes bytes) { return bytes == Bytes::max() ? Bytes() : bytes; };
  std::stable_sort(lines.begin(), lines.end(), [&](const Line& a, const Line& b) {
    switch (sort) {
      case SortSlices::kUsed:
        return amount(a.held->used) > amount(b.held->used);
      case SortSlices::kLimit:
        return a.held->limit > b.held->limit;
      case SortSlices::kDelivered:
        return a.held->delivered_percent > b.held->delivered_percent;
      case SortSlices::kNode:
        return std::pair(a.node, a.held->card) < std::pair(b.node, b.held->card);
      case SortSlices::kName:
        return a.name() < b.name();
    }
    return false;
  });
  return lines;
}

}  // namespace

bool sort_from(const std::string& word, SortSlices* sort) {
  const std::pair<const char*, SortSlices> words[] = {{"name", SortSlices::kName},
                                                      {"used", SortSlices::kUsed},
                                                      {"limit", SortSlices::kLimit},
                                                      {"delivered", SortSlices::kDelivered},
                                                      {"node", SortSlices::kNode}};
  for (const auto& [name, value] : words) {
    if (word != name) continue;
    *sort = value;
    return true;
  }
  return false;
}

std::string SliceTable::render(const std::vector<NodeView>& nodes) {
  std::map<std::string, std::deque<double>> trends;
  // What a person looks for first is within 80 columns.
  std::vector<std::vector<std::string>> rows = {
      {"DELIVERED", "TREND", "MEMORY USED / LIMIT", "SLICE", "REQUESTED", "STATE", "NODE", "CARD"}};
  for (const auto& line : lines_of(nodes, sort_, filter_)) {
    auto trend = std::move(trends_[line.key()]);
    trend.push_back(line.held->delivered_percent);
    if (trend.size() > kTrend) trend.pop_front();
    rows.push_back({fmt::format("{:.1f} %", line.held->delivered_percent),
                    heights({trend.begin(), trend.end()}, 100, kTrend), used_cell(line.held->used, line.held->limit),
                    clipped(line.name(), 32), share_cell(*line.slice, *line.held), line.slice->state, line.node,
                    short_uuid(line.held->card)});
    trends[line.key()] = std::move(trend);
  }
  trends_ = std::move(trends);  // without the slices that have ended
  std::string out = aligned(rows, {0, 2}, "");
  for (const auto& node : nodes) {
    if (!node.view) out += fmt::format("{}: {}\n", node.node, node.error);
  }
  return out;
}

std::string SliceTable::csv(const std::vector<NodeView>& nodes) const {
  std::string out =
      "node,card,slice,name,memory_limit_bytes,memory_used_bytes,cores_guaranteed,cores_delivered,share,priority,"
      "state\n";
  for (const auto& line : lines_of(nodes, sort_, filter_)) {
    out += fmt::format("{},{},{},{},{},{},{},{:.1f},{},{},{}\n", csv_field(line.node), csv_field(line.held->card),
                       csv_field(line.slice->id), csv_field(line.slice->name), line.held->limit.count(),
                       line.held->used == Bytes::max() ? "" : std::to_string(line.held->used.count()),
                       line.held->compute.hundredths(), line.held->delivered_percent, to_string(line.slice->share),
                       to_string(line.slice->priority), csv_field(line.slice->state));
  }
  return out;
}

}  // namespace carve::cli
