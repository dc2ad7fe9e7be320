#include "codec/views/gpushare_inspect.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <tuple>
#include <utility>

namespace carve::codec {
namespace {

namespace json = boost::json;

struct Holder {
  std::string namespace_name;
  std::string name;
  std::vector<Slice> slices;
};

/// Namespace and name of the owner; for an owner other than a pod (a claim) its readable name.
std::pair<std::string, std::string> name_in_two(const GpuHolder& holder) {
  if (!holder.pods.empty()) {
    const auto& pod = holder.pods.front();
    const auto slash = pod.find('/');
    if (slash != std::string::npos) return {pod.substr(0, slash), pod.substr(slash + 1)};
  }
  return {holder.namespace_name, holder.name.empty() ? holder.slice.owner.uid : holder.name};
}

GpushareCard card_of(const GpuObject& gpu, Bytes unit) {
  std::map<Owner, Holder> holders;
  for (const auto& one : gpu.holders) {
    auto& holder = holders[one.slice.owner];
    std::tie(holder.namespace_name, holder.name) = name_in_two(one);
    holder.slices.push_back(one.slice);
  }
  GpushareCard card;
  card.index = gpu.index;
  card.total = gpu.card.memory.count() / unit.count();
  for (const auto& [owner, holder] : holders) {
    const Holding held = holding_of(holder.slices.data(), holder.slices.data() + holder.slices.size());
    const auto bytes = held.whole ? card.total * unit.count() : held.memory.count();
    const auto units = bytes / unit.count() + (bytes % unit.count() == 0 ? 0 : 1);
    card.holders.push_back({holder.namespace_name, holder.name, units});
    card.used += units;
  }
  std::sort(card.holders.begin(), card.holders.end(), [](const GpushareHolder& a, const GpushareHolder& b) {
    return std::tie(a.namespace_name, a.name) < std::tie(b.namespace_name, b.name);
  });
  return card;
}

json::object value_of(const GpushareCard& card) {
  json::array pods;
  for (const auto& holder : card.holders)
    pods.push_back(json::object{{"name", holder.name}, {"namespace", holder.namespace_name}, {"usedGPU", holder.used}});
  return {{"id", card.index}, {"totalGPU", card.total}, {"usedGPU", card.used}, {"pods", std::move(pods)}};
}

}  // namespace

std::vector<GpushareNode> gpushare_nodes(const ClusterView& view, Bytes unit, std::string_view node) {
  std::vector<GpushareNode> nodes;
  for (const auto& gpu : view.cards) {
    if (!node.empty() && gpu.node != node) continue;
    if (nodes.empty() || nodes.back().name != gpu.node) nodes.push_back({gpu.node, 0, 0, {}});
    auto card = card_of(gpu, unit);
    nodes.back().total += card.total;
    nodes.back().used += card.used;
    nodes.back().cards.push_back(std::move(card));
  }
  return nodes;
}

std::string gpushare_inspect(const ClusterView& view, Bytes unit, std::string_view node) {
  json::array rows;
  for (const auto& one : gpushare_nodes(view, unit, node)) {
    json::array devices;
    for (const auto& card : one.cards) devices.push_back(value_of(card));
    rows.push_back(json::object{
        {"name", one.name}, {"totalGPU", one.total}, {"usedGPU", one.used}, {"devs", std::move(devices)}});
  }
  json::object result;
  const bool missing = !node.empty() && rows.empty();
  result["nodes"] = std::move(rows);
  if (missing) result["error"] = "node " + std::string(node.substr(0, 253)) + ": no card managed by Carve";
  return json::serialize(result);
}

}  // namespace carve::codec
