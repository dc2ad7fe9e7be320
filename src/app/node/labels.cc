#include "app/node/labels.h"

#include <algorithm>
#include <functional>

#include "codec/node/node_object.h"

namespace carve::node {
namespace {

constexpr std::size_t kNameMax = 63;

}  // namespace

bool is_agents_label(std::string_view key) {
  return key.starts_with("elasticgpu.io/gpu") || key.starts_with("elasticgpu.io/cuda.");
}

std::map<std::string, std::string> labels_of(const GpuInventory& cards) {
  std::map<std::string, std::string> labels;
  const auto put = [&](const std::string& name, const std::string& text) {
    const auto value = codec::label_value(text);
    if (!value.empty()) labels[std::string(codec::kOwnPrefix) + name] = value;
  };
  if (cards.cards.empty()) return labels;
  put("gpu.count", std::to_string(cards.cards.size()));
  put("cuda.driver-version", cards.driver_version);
  put("cuda.runtime-version", cards.cuda_version);
  Bytes least = Bytes::max();
  std::map<std::string, int> models;
  for (const auto& card : cards.cards) {
    least = std::min(least, card.memory);
    ++models[codec::label_value(card.model)];
  }
  put("gpu.memory", std::to_string(least.count() >> 20U));
  for (const auto& [model, count] : models) {
    const auto name = ("gpu-model." + model).substr(0, kNameMax);
    if (!model.empty())
      put(name.substr(0, name.find_last_not_of("-_.") + 1), std::to_string(count));
  }
  const auto put_common = [&](const std::string& name, const std::string Card::*field) {
    const auto& first = cards.cards.front().*field;
    if (std::all_of(cards.cards.begin(), cards.cards.end(),
                    [&](const Card& card) { return card.*field == first; }))
      put(name, first);
  };
  put_common("gpu.product", &Card::model);
  put_common("gpu.family", &Card::architecture);
  put_common("gpu.compute", &Card::compute_capability);
  return labels;
}

}  // namespace carve::node
