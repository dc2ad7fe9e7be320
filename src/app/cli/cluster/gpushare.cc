#include "app/cli/cluster/gpushare.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace carve::cli {
namespace {

using Node = codec::GpushareNode;
using Line = std::vector<std::string>;

/// Formats lines of cells like Go's text/tabwriter, which the original uses: every cell except the last one of a line
/// is as wide as the widest cell of its column plus 2. A column extends over adjacent lines that have it.
std::string tabbed(const std::vector<Line>& lines) {
  std::vector<Line> set = lines;
  std::size_t columns = 0;
  for (const auto& line : lines) columns = std::max(columns, line.size());
  for (std::size_t column = 0; column < columns; ++column) {
    for (std::size_t begin = 0; begin < lines.size();) {
      std::size_t end = begin;
      std::size_t width = 0;
      for (; end < lines.size() && lines[end].size() > column + 1; ++end)
        width = std::max(width, lines[end][column].size() + 2);
      for (std::size_t at = begin; at < end; ++at) set[at][column].resize(width, ' ');
      begin = std::max(end, begin + 1);
    }
  }
  std::string out;
  for (const auto& line : set) {
    for (const auto& cell : line) out += cell;
    out += '\n';
  }
  return out;
}

/// The length of a row in bytes, with a tab or a newline after every cell. The original derives the length of its
/// separator line from it.
std::size_t length_of(const Line& line) {
  std::size_t bytes = 0;
  for (const auto& cell : line) bytes += cell.size() + 1;
  return bytes;
}

std::uint64_t per_cent(std::uint64_t used, std::uint64_t total) { return total == 0 ? 0 : used * 100 / total; }

std::string address_of(const Node& node, const std::map<std::string, std::string>& addresses) {
  const auto found = addresses.find(node.name);
  return found == addresses.end() || found->second.empty() ? "unknown" : found->second;
}

struct Sum {
  std::uint64_t used = 0;
  std::uint64_t total = 0;

  explicit Sum(const std::vector<Node>& nodes) {
    for (const auto& node : nodes) {
      used += node.used;
      total += node.total;
    }
  }
  [[nodiscard]] std::string text() const { return fmt::format("{}/{} ({}%)", used, total, per_cent(used, total)); }
};

constexpr const char* kInCluster = "Allocated/Total GPU Memory In Cluster:";

std::string summary(const std::vector<Node>& nodes, const std::map<std::string, std::string>& addresses,
                    std::string_view unit) {
  std::size_t most = 0;
  for (const auto& node : nodes) most = std::max(most, node.cards.size());
  Line head = {"NAME", "IPADDRESS"};
  for (std::size_t card = 0; card < most; ++card) head.push_back(fmt::format("GPU{}(Allocated/Total)", card));
  head.push_back(fmt::format("GPU Memory({})", unit));
  std::vector<Line> lines = {head};
  for (const auto& node : nodes) {
    Line line = {node.name, address_of(node, addresses)};
    for (const auto& card : node.cards) line.push_back(fmt::format("{}/{}", card.used, card.total));
    line.resize(most + 2, "0/0");
    line.push_back(fmt::format("{}/{}", node.used, node.total));
    lines.push_back(std::move(line));
  }
  const std::size_t ruled = lines.size() > 1 ? length_of(lines[1]) + 20 : 0;
  lines.push_back({std::string(ruled, '-')});
  lines.push_back({kInCluster});
  lines.push_back({Sum(nodes).text(), ""});
  return tabbed(lines);
}

/// A line per pod with its memory on each card.
std::vector<Line> pods_of(const Node& node) {
  std::vector<Line> lines;
  std::map<std::pair<std::string, std::string>, std::vector<std::uint64_t>> pods;
  for (std::size_t card = 0; card < node.cards.size(); ++card) {
    for (const auto& holder : node.cards[card].holders) {
      auto& used = pods[{holder.namespace_name, holder.name}];
      used.resize(node.cards.size());
      used[card] += holder.used;
    }
  }
  for (const auto& [pod, used] : pods) {
    Line line = {pod.second, pod.first};
    for (const auto units : used) line.push_back(std::to_string(units));
    line.emplace_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string details_of(const std::vector<Node>& nodes, const std::map<std::string, std::string>& addresses) {
  std::vector<Line> lines;
  std::size_t ruled = 0;
  for (const auto& node : nodes) {
    lines.push_back({""});
    lines.push_back({"NAME:", node.name});
    lines.push_back({"IPADDRESS:", address_of(node, addresses)});
    lines.push_back({""});
    Line head = {"NAME", "NAMESPACE"};
    for (std::size_t card = 0; card < node.cards.size(); ++card) head.push_back(fmt::format("GPU{}(Allocated)", card));
    head.emplace_back();
    lines.push_back(std::move(head));
    std::size_t length = 0;
    for (auto& line : pods_of(node)) {
      length += length_of(line);
      lines.push_back(std::move(line));
    }
    if (ruled == 0) ruled = length + 10;
    lines.push_back({"Allocated :", fmt::format("{} ({}%)", node.used, per_cent(node.used, node.total)), ""});
    lines.push_back({"Total :", fmt::format("{} ", node.total), ""});
    lines.push_back({std::string(ruled, '-')});
  }
  lines.push_back({""});
  lines.push_back({""});
  lines.push_back({kInCluster, Sum(nodes).text(), ""});
  return tabbed(lines);
}

}  // namespace

std::string render_gpushare(const codec::ClusterView& view, Bytes unit,
                            const std::map<std::string, std::string>& addresses, bool details) {
  const auto nodes = codec::gpushare_nodes(view, unit, "");
  return details ? details_of(nodes, addresses) : summary(nodes, addresses, unit == Bytes::gib(1) ? "GiB" : "MiB");
}

}  // namespace carve::cli
