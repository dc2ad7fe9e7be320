#include "adapter/api/gpu_manager.h"

#include <boost/json.hpp>
#include <utility>

#include "port/slice_names.h"

namespace carve::api {
namespace {

namespace json = boost::json;

void put(json::object* object, const char* name, double value) {
  if (value != 0) (*object)[name] = value;
}

/// The slice's use of one of its cards; null: the card is gone.
json::value device_of(const AgentView& view, const SliceCardView& held) {
  for (std::size_t index = 0; index < view.cards.size(); ++index) {
    if (view.cards[index].card.id.str() != held.card) continue;
    json::object device{{"id", view.cards[index].pci_bus_id}, {"card_idx", std::to_string(index)}};
    put(&device, "gpu", held.delivered_percent);
    if (held.used != Bytes::max()) put(&device, "mem", held.used.in_mib());
    return device;
  }
  return nullptr;
}

void add(json::object* pod, const AgentView& view, const SliceView& slice) {
  json::array devices;
  double cores = 0;
  double memory = 0;
  for (const auto& held : slice.cards) {
    if (auto device = device_of(view, held); !device.is_null()) devices.push_back(std::move(device));
    cores += held.compute.hundredths();
    memory += held.limit.in_mib();
  }
  json::object spec;
  put(&spec, "gpu", cores / 100);
  put(&spec, "mem", memory);
  const auto container = names_of(slice).container;
  (*pod)["stat"].as_object()[container] = json::object{{"dev", std::move(devices)}};
  (*pod)["spec"].as_object()[container] = std::move(spec);
}

}  // namespace

std::string gpu_manager_usage(const AgentView& view) {
  json::object pods;
  for (const auto& slice : view.slices) {
    if (slice.kind != "pod" || slice.owner.empty()) continue;
    auto [pod, is_new] = pods.emplace(slice.owner, json::object());
    auto& object = pod->value().as_object();
    if (is_new) {
      object = {{"stat", json::object()}, {"project", names_of(slice).namespace_name},
                {"spec", json::object()}};
    }
    add(&object, view, slice);
  }
  json::object answer;
  if (!pods.empty()) answer["usage"] = std::move(pods);
  return json::serialize(answer);
}

}  // namespace carve::api
