#include "codec/views/usage.h"

#include <boost/json.hpp>
#include <cmath>
#include <set>

#include "codec/dialects/dialect.h"
#include "codec/json_read.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::string_view kRequests = "requests.";
constexpr std::string_view kDevices = ".deviceclass.resource.k8s.io/devices";

bool limits_cards(std::string_view resource) {
  if (resource.ends_with(kDevices)) return true;
  if (!resource.starts_with(kRequests)) return false;
  return !dialects_with(resource.substr(kRequests.size())).empty();
}

double rounded_hours(double hours) { return std::round(hours * 1e6) / 1e6; }  // to 4 ms

}  // namespace

Result<std::vector<CardQuota>> parse_card_quotas(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "ResourceQuota"));
  CardQuota quota;
  quota.namespace_name = json_read::text(value, "metadata.namespace");
  quota.quota = json_read::text(value, "metadata.name");
  if (quota.quota.empty()) return fail(Code::kInvalidArgument, "ResourceQuota: it has no name");
  std::vector<CardQuota> quotas;
  const auto* limits = json_read::at(value, "status.hard");
  const auto* hard = limits == nullptr ? nullptr : limits->if_object();
  if (hard == nullptr) return quotas;  // the quota's controller has not seen it yet
  for (const auto& [resource, limit] : *hard) {
    quota.resource = std::string(resource.data(), resource.size());
    quota.hard = json_read::text_of(&limit);
    if (quota.hard.empty() || !limits_cards(quota.resource)) continue;
    quota.used = json_read::text_named(json_read::at(value, "status.used"), quota.resource);
    if (quota.used.empty()) quota.used = "0";
    quotas.push_back(quota);
  }
  return quotas;
}

std::vector<CardQuota> card_quotas(const std::vector<QuotaUse>& uses) {
  std::vector<CardQuota> quotas;
  for (const auto& use : uses) {
    const std::string& model = use.quota.model;
    quotas.push_back({use.namespace_name, "carve-placement", model.empty() ? "cards" : model + " cards",
                      to_human_cards(use.used), to_human_cards(use.quota.limit)});
  }
  return quotas;
}

std::string usage_json(const Usage& usage) {
  std::map<std::string, json::array> quotas;
  for (const auto& one : usage.quotas) {
    quotas[one.namespace_name].push_back(
        json::object{{"quota", one.quota}, {"resource", one.resource}, {"used", one.used}, {"hard", one.hard}});
  }
  std::set<std::string> names;
  for (const auto& [name, hours] : usage.hours) names.insert(name);
  for (const auto& [name, limits] : quotas) names.insert(name);
  json::array namespaces;
  for (const auto& name : names) {
    const auto found = usage.hours.find(name);
    const UsageHours hours = found == usage.hours.end() ? UsageHours() : found->second;
    namespaces.push_back(
        json::object{{"name", name},
                     {"card_hours", json::object{{"promised", rounded_hours(hours.card_hours_promised)},
                                                 {"delivered", rounded_hours(hours.card_hours_delivered)}}},
                     {"gib_hours", json::object{{"held", rounded_hours(hours.gib_hours_held)},
                                                {"used", rounded_hours(hours.gib_hours_used)}}},
                     {"quotas", std::move(quotas[name])}});
  }
  return json::serialize(json::object{{"since_seconds", usage.since.count()},
                                      {"nodes", usage.nodes},
                                      {"silent_nodes", usage.silent},
                                      {"quotas_error", usage.quotas_error},
                                      {"namespaces", std::move(namespaces)}});
}

}  // namespace carve::codec
