#include "codec/views/elastic_status.h"

#include <boost/json.hpp>
#include <utility>

namespace carve::codec {
namespace {

namespace json = boost::json;

json::object card_status(const GpuObject& gpu) {
  const CardUse use = use_of(gpu);
  return {{"CoreAvailable", free_cores(gpu.card, use)},
          {"MemoryAvailable", free_memory(gpu.card, use).count() >> 20U},
          {"CoreTotal", CoreShare::whole().hundredths()},
          {"MemoryTotal", gpu.card.memory.count() >> 20U}};
}

}  // namespace

std::string elastic_status(const ClusterView& view) {
  json::object nodes;
  for (const auto& gpu : view.cards) {
    const auto node = nodes.emplace(gpu.node, json::array()).first;
    node->value().as_array().push_back(card_status(gpu));
  }
  const std::string text = json::serialize(nodes);
  return json::serialize(json::object{{"elasticgpu.com/gpu-core", text}, {"elasticgpu.com/gpu-memory", text}});
}

}  // namespace carve::codec
