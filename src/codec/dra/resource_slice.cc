#include "codec/dra/resource_slice.h"

#include <utility>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
namespace read = json_read;

json::value encode(const DeviceAttribute& attribute) {
  if (const auto* text = std::get_if<std::string>(&attribute)) return json::object{{"string", *text}};
  if (const auto* number = std::get_if<std::int64_t>(&attribute)) return json::object{{"int", *number}};
  if (const auto* flag = std::get_if<bool>(&attribute)) return json::object{{"bool", *flag}};
  return json::object{{"version", std::get<AttributeVersion>(attribute).text}};
}

json::value encode(const PublishedDevice& device) {
  json::object attributes;
  for (const auto& [name, attribute] : device.attributes) attributes[name] = encode(attribute);
  json::object capacities;
  for (const auto& [name, capacity] : device.capacity) {
    json::object range{{"min", capacity.min}};
    if (!capacity.step.empty()) range["step"] = capacity.step;
    if (!capacity.max.empty()) range["max"] = capacity.max;
    capacities[name] = json::object{
        {"value", capacity.value},
        {"requestPolicy", json::object{{"default", capacity.standard}, {"validRange", std::move(range)}}}};
  }
  json::object out{{"name", device.name},
                   {"allowMultipleAllocations", true},
                   {"attributes", std::move(attributes)},
                   {"capacity", std::move(capacities)}};
  if (!device.taints.empty()) {
    json::array taints;
    for (const auto& taint : device.taints) {
      json::object item{{"key", taint.key}, {"value", taint.value}, {"effect", taint.effect}};
      if (!taint.added.empty()) item["timeAdded"] = taint.added;
      taints.push_back(std::move(item));
    }
    out["taints"] = std::move(taints);
  }
  return out;
}

PublishedDevice device_of(const json::value& value) {
  PublishedDevice device;
  device.name = read::text(value, "name");
  if (const auto* attributes = read::member(value, "attributes"); attributes && attributes->is_object()) {
    for (const auto& [name, attribute] : attributes->get_object()) {
      if (const auto* number = read::member(attribute, "int"); number && number->is_int64()) {
        device.attributes[name] = number->get_int64();
      } else if (const auto* flag = read::member(attribute, "bool"); flag && flag->is_bool()) {
        device.attributes[name] = flag->get_bool();
      } else if (read::member(attribute, "version") != nullptr) {
        device.attributes[name] = AttributeVersion{read::text(attribute, "version")};
      } else {
        device.attributes[name] = read::text(attribute, "string");
      }
    }
  }
  if (const auto* capacities = read::member(value, "capacity"); capacities && capacities->is_object()) {
    for (const auto& [name, item] : capacities->get_object()) {
      device.capacity[name] = {read::text(item, "value"), read::text(item, "requestPolicy.default"),
                               read::text(item, "requestPolicy.validRange.min"),
                               read::text(item, "requestPolicy.validRange.step"),
                               read::text(item, "requestPolicy.validRange.max")};
    }
  }
  for (const auto& taint : read::list(value, "taints"))
    device.taints.push_back({read::text(taint, "key"), read::text(taint, "value"),
                             read::text(taint, "effect"), read::text(taint, "timeAdded")});
  return device;
}

}  // namespace

std::string encode_slice(const PublishedSlice& slice, std::string_view node_uid) {
  json::object metadata{{"name", slice.name}};
  if (!slice.version.empty()) metadata["resourceVersion"] = slice.version;
  if (!node_uid.empty()) {
    metadata["ownerReferences"] =
        json::array{json::object{{"apiVersion", "v1"},
                                 {"kind", "Node"},
                                 {"name", slice.node},
                                 {"uid", json::string_view(node_uid.data(), node_uid.size())},
                                 {"controller", true}}};
  }
  json::array devices;
  for (const auto& device : slice.devices) devices.push_back(encode(device));
  return json::serialize(
      json::object{{"apiVersion", "resource.k8s.io/v1"},
                   {"kind", "ResourceSlice"},
                   {"metadata", std::move(metadata)},
                   {"spec", json::object{{"driver", slice.driver},
                                         {"nodeName", slice.node},
                                         {"pool", json::object{{"name", slice.pool},
                                                               {"generation", slice.generation},
                                                               {"resourceSliceCount", slice.count}}},
                                         {"devices", std::move(devices)}}}});
}

Result<PublishedSlice> parse_slice(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "ResourceSlice"));
  PublishedSlice slice;
  slice.name = read::text(value, "metadata.name");
  if (slice.name.empty()) return fail(Code::kInvalidArgument, "ResourceSlice: metadata.name is missing");
  slice.version = read::text(value, "metadata.resourceVersion");
  slice.driver = read::text(value, "spec.driver");
  slice.node = read::text(value, "spec.nodeName");
  slice.pool = read::text(value, "spec.pool.name");
  slice.generation = read::number(value, "spec.pool.generation");
  slice.count = read::number(value, "spec.pool.resourceSliceCount");
  for (const auto& device : read::list(value, "spec.devices")) slice.devices.push_back(device_of(device));
  return slice;
}

}  // namespace carve::codec
