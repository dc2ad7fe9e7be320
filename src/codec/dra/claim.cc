#include "codec/dra/claim.h"

#include <utility>

#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;
namespace read = json_read;

/// A quantity is a string or, from a careless writer, a number.
std::string quantity(const json::value& value) {
  if (const auto* text = value.if_string()) return {text->data(), text->size()};
  return value.is_number() ? json::serialize(value) : std::string();
}

ClaimResult result_of(const json::value& value) {
  ClaimResult result{read::text(value, "request"), read::text(value, "driver"),
                     read::text(value, "pool"),    read::text(value, "device"),
                     read::text(value, "shareID"), {}};
  if (const auto* consumed = read::member(value, "consumedCapacity");
      consumed && consumed->is_object()) {
    for (const auto& [name, amount] : consumed->get_object())
      result.consumed[name] = quantity(amount);
  }
  return result;
}

/// `value`: a request ("exactly"), or one alternative of it.
ClaimAsk ask_of(const json::value& value, std::string name) {
  ClaimAsk ask{std::move(name), read::text(value, "deviceClassName"), 1, {}};
  if (read::at(value, "count") != nullptr) ask.count = read::number(value, "count");
  if (read::text(value, "allocationMode") == "All") ask.count = 0;
  if (const auto* wanted = read::at(value, "capacity.requests"); wanted != nullptr && wanted->is_object()) {
    for (const auto& [key, amount] : wanted->get_object()) ask.capacity[key] = quantity(amount);
  }
  return ask;
}

ClaimConfig config_of(const json::value& value) {
  ClaimConfig config;
  config.from_class = read::text(value, "source") == "FromClass";
  for (const auto& request : read::list(value, "requests")) {
    if (const auto* text = request.if_string())
      config.requests.emplace_back(text->data(), text->size());
  }
  config.driver = read::text(value, "opaque.driver");
  if (const auto* parameters = read::at(value, "opaque.parameters"))
    config.parameters = json::serialize(*parameters);
  return config;
}

}  // namespace

Result<Claim> parse_claim(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "ResourceClaim"));
  Claim claim;
  claim.namespace_name = read::text(value, "metadata.namespace");
  claim.name = read::text(value, "metadata.name");
  claim.uid = read::text(value, "metadata.uid");
  if (claim.name.empty() || claim.uid.empty())
    return fail(Code::kInvalidArgument, "ResourceClaim: metadata.name or metadata.uid is missing");
  for (const auto& request : read::list(value, "spec.devices.requests")) {
    const auto name = read::text(request, "name");
    if (const auto* exactly = read::at(request, "exactly")) claim.asks.push_back(ask_of(*exactly, name));
    for (const auto& one : read::list(request, "firstAvailable"))
      claim.asks.push_back(ask_of(one, name + "/" + read::text(one, "name")));
  }
  for (const auto& ask : claim.asks) {
    if (!ask.device_class.empty()) claim.classes.push_back(ask.device_class);
  }
  const auto* allocation = read::at(value, "status.allocation");
  claim.allocated = allocation != nullptr && allocation->is_object();
  if (claim.allocated) {
    for (const auto& item : read::list(*allocation, "devices.results"))
      claim.results.push_back(result_of(item));
    for (const auto& item : read::list(*allocation, "devices.config"))
      claim.configs.push_back(config_of(item));
  }
  for (const auto& item : read::list(value, "status.reservedFor"))
    claim.users.push_back(
        {read::text(item, "resource"), read::text(item, "name"), read::text(item, "uid")});
  for (const auto& item : read::list(value, "status.devices")) {
    const auto device = read::text(item, "pool") + "/" + read::text(item, "device") + "/" + read::text(item, "shareID");
    for (const auto& condition : read::list(item, "conditions")) {
      if (read::text(condition, "type") != "Ready") continue;
      if (read::text(condition, "status") == "True") claim.ready.push_back(device);
      if (read::text(condition, "status") == "False") claim.refused[device] = read::text(condition, "message");
    }
  }
  return claim;
}

std::string claim_status_body(const Claim& claim, const std::vector<DeviceStatus>& devices,
                              std::string_view now_rfc3339) {
  json::array list;
  for (const auto& device : devices) {
    json::object item{{"driver", device.driver}, {"pool", device.pool}, {"device", device.device}};
    if (!device.share.empty()) item["shareID"] = device.share;
    item["conditions"] = json::array{json::object{
        {"type", "Ready"},
        {"status", device.ready ? "True" : "False"},
        {"reason", device.reason},
        {"message", device.message},
        {"lastTransitionTime", json::string_view(now_rfc3339.data(), now_rfc3339.size())}}};
    if (!device.data.empty()) {
      json::error_code error;
      json::value data = json::parse(device.data, error);
      if (!error && data.is_object()) item["data"] = std::move(data);
    }
    list.push_back(std::move(item));
  }
  return json::serialize(json::object{
      {"apiVersion", "resource.k8s.io/v1"},
      {"kind", "ResourceClaim"},
      {"metadata", json::object{{"name", claim.name}, {"namespace", claim.namespace_name}, {"uid", claim.uid}}},
      {"status", json::object{{"devices", std::move(list)}}}});
}

}  // namespace carve::codec
