#include "codec/kubelet/checkpoint.h"

#include <boost/json.hpp>
#include <cstdint>
#include <utility>

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

/// Base64 as Go writes it; empty when it is none.
std::string decoded(const std::string& text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    std::uint32_t six = 0;
    if (c >= 'A' && c <= 'Z') {
      six = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      six = static_cast<std::uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      six = static_cast<std::uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      six = c == '+' ? 62 : 63;
    } else {
      return {};
    }
    bits = bits << 6U | six;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> static_cast<unsigned>(count) & 0xffU);
    }
  }
  return out;
}

}  // namespace

Result<std::vector<CheckpointEntry>> parse_checkpoint(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, kFile, 16));
  const auto* data = member(value, "Data");
  const auto* entries = data == nullptr ? nullptr : member(*data, "PodDeviceEntries");
  std::vector<CheckpointEntry> out;
  if (entries != nullptr && entries->is_null()) return out;  // Go's spelling of an empty list
  if (entries == nullptr || !entries->is_array())
    return fail(Code::kInvalidArgument,
                "the kubelet's device checkpoint: no list Data.PodDeviceEntries");
  for (const auto& item : entries->get_array()) {
    CheckpointEntry entry{text_of(item, "PodUID"),
                          text_of(item, "ContainerName"),
                          text_of(item, "ResourceName"),
                          {},
                          decoded(text_of(item, "AllocResp"))};
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
