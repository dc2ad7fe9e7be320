#include "codec/views/cluster_view.h"

#include <algorithm>
#include <boost/json.hpp>
#include <tuple>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

json::object amounts(std::uint64_t total, std::uint64_t granted, std::uint64_t free) {
  return {{"total", total}, {"granted", granted}, {"free", free}};
}

json::object value_of(const GpuHolder& holder) {
  const Slice& slice = holder.slice;
  json::array pods;
  for (const auto& pod : holder.pods) pods.emplace_back(pod);
  json::object out{{"name", name_of(holder)},
                   {"kind", json_read::json_text(to_string(slice.owner.kind))},
                   {"uid", slice.owner.uid},
                   {"part", slice.part},
                   {"pods", std::move(pods)},
                   {"memory_bytes", slice.memory.count()},
                   {"cores", slice.compute.hundredths()},
                   {"whole", slice.whole},
                   {"share", json_read::json_text(to_string(slice.share))},
                   {"priority", json_read::json_text(to_string(slice.priority))},
                   {"dialect", slice.dialect},
                   {"ending", holder.ending}};
  if (slice.ceiling != CoreShare::whole()) out["core_limit"] = slice.ceiling.hundredths();
  return out;
}

/// True: no other owner can use the card, because it is held exclusively or unhealthy.
bool none_left(const Card& card, const CardUse& use) { return use.exclusive || !card.health.ok; }

json::object value_of(const GpuObject& gpu) {
  const CardUse use = use_of(gpu);
  json::array holders;
  for (const auto& holder : gpu.holders) holders.push_back(value_of(holder));
  return {{"uuid", gpu.card.id.str()},
          {"index", gpu.index},
          {"model", gpu.card.model},
          {"vendor", gpu.card.vendor},
          {"healthy", gpu.card.health.ok},
          {"reason", gpu.card.health.reason},
          {"closed", gpu.card.closed},
          {"mode", json_read::json_text(to_string(gpu.card.mode))},
          {"numa_node", gpu.card.numa_node},
          {"driver_version", gpu.driver_version},
          {"memory_bytes", amounts(gpu.card.memory.count(), use.memory.count(), free_memory(gpu.card, use).count())},
          {"cores", amounts(gpu.card.compute.hundredths(), use.compute.hundredths(), free_cores(gpu.card, use))},
          {"holders", std::move(holders)}};
}

}  // namespace

ClusterView cluster_view(std::vector<GpuObject> cards, std::vector<WaitingPod> waiting) {
  std::sort(cards.begin(), cards.end(), [](const GpuObject& a, const GpuObject& b) {
    return std::tie(a.node, a.index, a.name) < std::tie(b.node, b.index, b.name);
  });
  std::sort(waiting.begin(), waiting.end(), [](const WaitingPod& a, const WaitingPod& b) {
    return std::tie(a.namespace_name, a.name) < std::tie(b.namespace_name, b.name);
  });
  return {std::move(cards), std::move(waiting), {}};
}

CardUse use_of(const GpuObject& gpu) {
  std::vector<Slice> slices;
  for (const auto& holder : gpu.holders) slices.push_back(holder.slice);
  std::sort(slices.begin(), slices.end(),
            [](const Slice& a, const Slice& b) { return std::tie(a.owner, a.part) < std::tie(b.owner, b.part); });
  CardUse use;
  use.slices = static_cast<std::uint32_t>(slices.size());
  for (std::size_t begin = 0; begin < slices.size();) {
    std::size_t end = begin;
    while (end < slices.size() && slices[end].owner == slices[begin].owner) ++end;
    const Holding held = holding_of(slices.data() + begin, slices.data() + end);
    use.memory += held.whole ? gpu.card.memory : held.memory;
    use.compute += held.compute;
    use.exclusive = use.exclusive || held.exclusive;
    ++use.owners;
    begin = end;
  }
  return use;
}

Bytes free_memory(const Card& card, const CardUse& use) {
  return none_left(card, use) ? Bytes() : card.memory - use.memory;
}

std::uint32_t free_cores(const Card& card, const CardUse& use) {
  return none_left(card, use) ? 0 : (card.compute - use.compute).hundredths();
}

std::string name_of(const GpuHolder& holder) {
  if (!holder.pods.empty()) {
    std::string all;
    for (const auto& pod : holder.pods) all += (all.empty() ? "" : "+") + pod;
    return all;
  }
  if (!holder.name.empty())
    return holder.namespace_name.empty() ? holder.name : holder.namespace_name + "/" + holder.name;
  return std::string(to_string(holder.slice.owner.kind)) + " " + holder.slice.owner.uid;
}

std::string to_json(const ClusterView& view) {
  json::array nodes;
  Bytes memory;
  Bytes granted;
  Bytes free;
  std::uint64_t cores = 0;
  std::uint64_t cores_granted = 0;
  std::uint64_t cores_free = 0;
  for (const auto& gpu : view.cards) {
    if (nodes.empty() || nodes.back().at("name").as_string() != gpu.node)
      nodes.push_back(json::object{{"name", gpu.node}, {"cards", json::array()}});
    nodes.back().at("cards").as_array().push_back(value_of(gpu));
    const CardUse use = use_of(gpu);
    memory += gpu.card.memory;
    granted += use.memory;
    free += free_memory(gpu.card, use);
    cores += gpu.card.compute.hundredths();
    cores_granted += use.compute.hundredths();
    cores_free += free_cores(gpu.card, use);
  }
  json::array waiting;
  for (const auto& pod : view.waiting)
    waiting.push_back(
        json::object{{"namespace", pod.namespace_name}, {"name", pod.name}, {"asks", pod.asks}, {"why", pod.why}});
  return json::serialize(json::object{
      {"nodes", std::move(nodes)},
      {"totals", json::object{{"cards", view.cards.size()},
                              {"memory_bytes", amounts(memory.count(), granted.count(), free.count())},
                              {"cores", amounts(cores, cores_granted, cores_free)}}},
      {"waiting", std::move(waiting)},
      {"unread", view.unread}});
}

}  // namespace carve::codec
