#include "codec/cluster/lease.h"

#include <algorithm>
#include <ctime>

#include "codec/json_read.h"

namespace carve::codec {

namespace json = boost::json;
namespace read = json_read;

Result<Lease> parse_lease(std::string_view text) {
  CARVE_TRY(const auto value, read::parse(text, "Lease"));
  Lease lease;
  lease.name = read::text(value, "metadata.name");
  if (lease.name.empty()) return fail(Code::kInvalidArgument, "Lease: metadata.name is missing");
  lease.namespace_name = read::text(value, "metadata.namespace");
  lease.version = read::text(value, "metadata.resourceVersion");
  lease.holder = read::text(value, "spec.holderIdentity");
  lease.seconds = std::clamp<std::int64_t>(read::number(value, "spec.leaseDurationSeconds"), 0, 3600);
  lease.acquired = read::text(value, "spec.acquireTime");
  lease.renewed = read::text(value, "spec.renewTime");
  lease.transitions = std::clamp<std::int64_t>(read::number(value, "spec.leaseTransitions"), 0, INT32_MAX - 1);
  return lease;
}

std::optional<std::int64_t> seconds_since(const std::string& rfc3339, std::int64_t now_unix_s) {
  std::tm time{};
  if (::strptime(rfc3339.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) return std::nullopt;
  return now_unix_s - ::timegm(&time);
}

std::optional<std::int64_t> seconds_since_renewal(const Lease& lease, std::int64_t now_unix_s) {
  return seconds_since(lease.renewed, now_unix_s);
}

std::string encode_lease(const Lease& lease) {
  json::object metadata{{"name", lease.name}, {"namespace", lease.namespace_name}};
  if (!lease.version.empty()) metadata["resourceVersion"] = lease.version;
  json::object spec{{"holderIdentity", lease.holder},
                    {"leaseDurationSeconds", lease.seconds},
                    {"leaseTransitions", lease.transitions}};
  if (!lease.acquired.empty()) spec["acquireTime"] = lease.acquired;
  if (!lease.renewed.empty()) spec["renewTime"] = lease.renewed;
  return json::serialize(json::object{{"apiVersion", "coordination.k8s.io/v1"},
                                      {"kind", "Lease"},
                                      {"metadata", std::move(metadata)},
                                      {"spec", std::move(spec)}});
}

}  // namespace carve::codec
