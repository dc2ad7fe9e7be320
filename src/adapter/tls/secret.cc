#include "adapter/tls/secret.h"

#include <boost/json.hpp>
#include <utility>

#include "codec/json_read.h"

namespace carve::tls {
namespace {

namespace json = boost::json;
namespace json_read = codec::json_read;

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

std::string entry(const Secret& secret, const std::string& name) {
  const auto found = secret.data.find(name);
  return found == secret.data.end() ? std::string() : found->second;
}

void put(Secret* secret, const std::string& name, const std::string& value) {
  if (value.empty()) {
    secret->data.erase(name);
  } else {
    secret->data[name] = value;
  }
}

}  // namespace

Result<Secret> parse_secret(std::string_view text) {
  CARVE_TRY(const auto value, json_read::parse(text, "Secret"));
  Secret secret;
  secret.version = json_read::text(value, "metadata.resourceVersion");
  if (secret.version.empty()) return fail(Code::kInvalidArgument, "Secret: no metadata.resourceVersion");
  const auto* data = json_read::member(value, "data");
  if (data == nullptr || !data->is_object()) return secret;
  for (const auto& [name, one] : data->get_object()) {
    auto bytes = from_base64(json_read::text_of(&one));
    if (bytes) secret.data[std::string(name)] = std::move(*bytes);
  }
  return secret;
}

std::string secret_json(const Secret& secret, std::string_view namespace_name, std::string_view name,
                        std::string_view existing) {
  json::object object;
  if (auto read = json_read::parse(existing, "Secret"); read && read->is_object()) object = read->get_object();
  object["apiVersion"] = "v1";
  object["kind"] = "Secret";
  auto& metadata = object["metadata"];
  if (!metadata.is_object()) metadata.emplace_object();
  auto& fields = metadata.get_object();
  fields["name"] = view(name);
  fields["namespace"] = view(namespace_name);
  fields.erase("managedFields");
  if (!secret.version.empty()) fields["resourceVersion"] = secret.version;
  if (secret.version.empty()) {
    fields["labels"] = {{"app.kubernetes.io/name", "carve"}, {"app.kubernetes.io/component", "control"}};
    object["type"] = "Opaque";
  }
  json::object data;
  for (const auto& [key, bytes] : secret.data) data[key] = to_base64(bytes);
  object["data"] = std::move(data);
  return json::serialize(object);
}

Kept kept_in(const Secret& secret) {
  Kept kept;
  kept.authorities = certificates_in(entry(secret, "ca.crt"));
  kept.authority_key = entry(secret, "ca.key");
  kept.next_key = entry(secret, "next.key");
  kept.serving = pair_in(secret);
  return kept;
}

void keep(const Kept& kept, Secret* secret) {
  put(secret, "ca.crt", bundle(kept));
  put(secret, "ca.key", kept.authority_key);
  put(secret, "next.key", kept.next_key);
  put(secret, "tls.crt", kept.serving.certificate);
  put(secret, "tls.key", kept.serving.key);
}

Pair pair_in(const Secret& secret) { return {entry(secret, "tls.crt"), entry(secret, "tls.key")}; }

Result<std::optional<std::string>> webhook_patch(std::string_view configuration, std::string_view namespace_name,
                                                 std::string_view service, const std::string& authorities) {
  CARVE_TRY(const auto value, json_read::parse(configuration, "webhook configuration"));
  const auto encoded = to_base64(authorities);
  json::array patch;
  patch.push_back({{"op", "test"},
                   {"path", "/metadata/resourceVersion"},
                   {"value", json_read::text(value, "metadata.resourceVersion")}});
  std::size_t number = 0;
  for (const auto& webhook : json_read::list(value, "webhooks")) {
    const auto path = "/webhooks/" + std::to_string(number++) + "/clientConfig/caBundle";
    if (json_read::text(webhook, "clientConfig.service.namespace") != namespace_name ||
        json_read::text(webhook, "clientConfig.service.name") != service ||
        json_read::text(webhook, "clientConfig.caBundle") == encoded)
      continue;
    patch.push_back({{"op", "add"}, {"path", path}, {"value", encoded}});
  }
  if (patch.size() == 1) return std::nullopt;
  return json::serialize(patch);
}

}  // namespace carve::tls
