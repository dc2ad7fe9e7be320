#include "codec/views/gpushare_inspect.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace carve::codec {
namespace {

namespace json = boost::json;

struct Holder {
  std::string space;
  std::string name;
  std::vector<Slice> slices;
};

/// Who the owner is called; of what is no pod (a claim) the name that people gave it.
std::pair<std::string, std::string> name_in_two(const GpuHolder& holder) {
  if (!holder.pods.empty()) {
    const auto& pod = holder.pods.front();
    const auto slash = pod.find('/');
    if (slash != std::string::npos) return {pod.substr(0, slash), pod.substr(slash + 1)};
  }
  return {holder.space, holder.name.empty() ? holder.slice.owner.uid : holder.name};
}

json::object device(const GpuObject& gpu, Bytes unit, std::uint64_t* used) {
  std::map<Owner, Holder> holders;
  for (const auto& one : gpu.holders) {
    auto& holder = holders[one.slice.owner];
    std::tie(holder.space, holder.name) = name_in_two(one);
    holder.slices.push_back(one.slice);
  }
  std::vector<std::pair<Holder, std::uint64_t>> rows;
  for (const auto& [owner, holder] : holders) {
    const Holding held = holding_of(holder.slices.data(), holder.slices.data() + holder.slices.size());
    const auto bytes = held.whole ? gpu.card.memory.count() / unit.count() * unit.count() : held.memory.count();
    rows.emplace_back(holder, bytes / unit.count() + (bytes % unit.count() == 0 ? 0 : 1));
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.space, a.first.name) < std::tie(b.first.space, b.first.name);
  });
  json::array pods;
  *used = 0;
  for (const auto& [holder, units] : rows) {
    pods.push_back(json::object{{"name", holder.name}, {"namespace", holder.space}, {"usedGPU", units}});
    *used += units;
  }
  return {{"id", gpu.index},
          {"totalGPU", gpu.card.memory.count() / unit.count()},
          {"usedGPU", *used},
          {"pods", std::move(pods)}};
}

}  // namespace

std::string gpushare_inspect(const ClusterView& view, Bytes unit, std::string_view node) {
  json::array nodes;
  for (const auto& gpu : view.cards) {
    if (!node.empty() && gpu.node != node) continue;
    if (nodes.empty() || nodes.back().at("name").as_string() != gpu.node)
      nodes.push_back(json::object{
          {"name", gpu.node}, {"totalGPU", std::uint64_t{0}}, {"usedGPU", std::uint64_t{0}}, {"devs", json::array()}});
    auto& row = nodes.back().as_object();
    std::uint64_t used = 0;
    row["devs"].as_array().push_back(device(gpu, unit, &used));
    row["totalGPU"] = row["totalGPU"].as_uint64() + gpu.card.memory.count() / unit.count();
    row["usedGPU"] = row["usedGPU"].as_uint64() + used;
  }
  json::object result;
  const bool missing = !node.empty() && nodes.empty();
  result["nodes"] = std::move(nodes);
  if (missing) result["error"] = "node " + std::string(node.substr(0, 253)) + ": no card of ours on it";
  return json::serialize(result);
}

}  // namespace carve::codec
