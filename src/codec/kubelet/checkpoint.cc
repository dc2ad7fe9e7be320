#include "codec/kubelet/checkpoint.h"

#include <boost/json.hpp>
#include <utility>

#include "codec/base64.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

using json_read::member;

constexpr std::string_view kFile = "the kubelet's device checkpoint";

std::string text_of(const json::value& value, std::string_view key) {
  return json_read::text_named(&value, key);
}

void add_devices(const json::value& value, std::vector<std::string>* devices) {
  if (const auto* list = value.if_array()) {
    for (const auto& item : *list) {
      if (const auto* text = item.if_string()) devices->emplace_back(text->data(), text->size());
    }
  } else if (const auto* by_node = value.if_object()) {
    for (const auto& [node, items] : *by_node) {
      if (items.is_array()) add_devices(items, devices);
    }
  }
}

}  // namespace

Result<std::vector<CheckpointEntry>> parse_checkpoint(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, kFile, 16));
  const auto* data = member(value, "Data");
  const auto* entries = data == nullptr ? nullptr : member(*data, "PodDeviceEntries");
  std::vector<CheckpointEntry> out;
  if (entries != nullptr && entries->is_null()) return out;  // Go writes an empty list as null
  if (entries == nullptr || !entries->is_array())
    return fail(Code::kInvalidArgument,
                "the kubelet's device checkpoint: Data.PodDeviceEntries is not a list");
  for (const auto& item : entries->get_array()) {
    CheckpointEntry entry{text_of(item, "PodUID"),
                          text_of(item, "ContainerName"),
                          text_of(item, "ResourceName"),
                          {},
                          decode_base64(text_of(item, "AllocResp")).value_or("")};
    if (const auto* devices = member(item, "DeviceIDs")) add_devices(*devices, &entry.devices);
    if (!entry.pod_uid.empty() && !entry.container.empty() && !entry.resource.empty() &&
        !entry.devices.empty())
      out.push_back(std::move(entry));
  }
  return out;
}

Result<std::map<std::string, std::size_t>> parse_registered(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, kFile, 16));
  std::map<std::string, std::size_t> registered;
  const auto* found = json_read::at(value, "Data.RegisteredDevices");
  const auto* object = found == nullptr ? nullptr : found->if_object();
  if (object == nullptr) return registered;
  for (const auto& entry : *object) {
    const auto* devices = entry.value().if_array();
    registered[std::string(entry.key())] = devices == nullptr ? 0 : devices->size();
  }
  return registered;
}

}  // namespace carve::codec
