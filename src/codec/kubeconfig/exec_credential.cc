#include "codec/kubeconfig/exec_credential.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

#include "codec/json_read.h"
#include "codec/base64.h"

namespace carve::codec {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepth = 16;

tl::unexpected<Error> wrong(std::string_view what) {
  return fail(Code::kInvalidArgument, "ExecCredential: " + std::string(what));
}

/// A text that may be absent or null.
Result<std::string> text_in(const json::value& status, const char* field) {
  const auto* value = json_read::member(status, field);
  if (value == nullptr || value->is_null()) return std::string();
  if (!value->is_string()) return wrong(fmt::format("status.{}: expected text", field));
  return json_read::text_of(value);
}

/// Parses and removes the first `count` digits of `text`.
std::optional<int> digits(std::string_view* text, std::size_t count) {
  int value = 0;
  if (text->size() < count) return std::nullopt;
  const char* end = text->data() + count;
  if (text->front() == '-' || std::from_chars(text->data(), end, value).ptr != end) return std::nullopt;
  text->remove_prefix(count);
  return value;
}

bool take(std::string_view* text, char c) {
  if (text->empty() || text->front() != c) return false;
  text->remove_prefix(1);
  return true;
}

/// The offset from UTC in seconds: "Z", "+02:00".
std::optional<int> zone(std::string_view text) {
  if (text == "Z" || text == "z") return 0;
  const bool behind = take(&text, '-');
  if (!behind && !take(&text, '+')) return std::nullopt;
  const auto hours = digits(&text, 2);
  const bool colon = take(&text, ':');
  const auto minutes = digits(&text, 2);
  if (!hours || !colon || !minutes || !text.empty() || *hours > 23 || *minutes > 59) return std::nullopt;
  return (behind ? -1 : 1) * (*hours * 3600 + *minutes * 60);
}

/// Parses RFC 3339 and drops fractions of a second.
std::optional<std::int64_t> unix_seconds(std::string_view text) {
  namespace chrono = std::chrono;
  const auto year = digits(&text, 4);
  const bool dash = take(&text, '-');
  const auto month = digits(&text, 2);
  const bool second_dash = take(&text, '-');
  const auto day = digits(&text, 2);
  const bool between = take(&text, 'T') || take(&text, 't');
  const auto hour = digits(&text, 2);
  const bool colon = take(&text, ':');
  const auto minute = digits(&text, 2);
  const bool second_colon = take(&text, ':');
  const auto second = digits(&text, 2);
  if (!year || !dash || !month || !second_dash || !day || !between || !hour || !colon || !minute || !second_colon ||
      !second || *hour > 23 || *minute > 59 || *second > 60)
    return std::nullopt;
  if (take(&text, '.')) {
    const auto end = text.find_first_not_of("0123456789");
    if (end == 0 || end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end);
  }
  const auto ahead = zone(text);
  const chrono::year_month_day date(chrono::year(*year), chrono::month(static_cast<unsigned>(*month)),
                                    chrono::day(static_cast<unsigned>(*day)));
  if (!ahead || !date.ok()) return std::nullopt;
  return std::int64_t{chrono::sys_days(date).time_since_epoch().count()} * 86400 + *hour * 3600 + *minute * 60 +
         *second - *ahead;
}

}  // namespace

Result<ExecCredential> parse_exec_credential(std::string_view text, std::string_view api_version) {
  // Boost's message describes the fault and never quotes the text.
  CARVE_TRY(const auto root, json_read::parse(text, "ExecCredential", kDepth));
  if (json_read::text(root, "kind") != "ExecCredential") return wrong("kind: expected \"ExecCredential\"");
  if (const auto said = json_read::text(root, "apiVersion"); said != api_version) {
    // Not quoted: it may be a credential in the wrong field.
    return wrong(fmt::format("apiVersion: differs from user.exec.apiVersion, {}", api_version));
  }
  const auto* status = json_read::member(root, "status");
  if (status == nullptr || !status->is_object()) return wrong("status: expected a map");
  ExecCredential found;
  CARVE_TRY(found.token, text_in(*status, "token"));
  CARVE_TRY(found.certificate, text_in(*status, "clientCertificateData"));
  CARVE_TRY(found.key, text_in(*status, "clientKeyData"));
  if (found.certificate.empty() != found.key.empty()) {
    return wrong("status: clientCertificateData and clientKeyData must be set together");
  }
  if (found.token.empty() && found.key.empty()) {
    return wrong("status: expected token, or clientCertificateData with clientKeyData");
  }
  CARVE_TRY(const auto expires, text_in(*status, "expirationTimestamp"));
  if (!expires.empty()) {
    found.expires_unix_s = unix_seconds(expires);
    if (!found.expires_unix_s) return wrong("status.expirationTimestamp: expected a time of RFC 3339");
  }
  return found;
}

std::string exec_info(const ExecPlugin& plugin, const ExecCluster& cluster, bool interactive) {
  json::object spec{{"interactive", interactive}};
  if (plugin.wants_cluster) {
    json::object told{{"server", cluster.server}};
    if (!cluster.tls_server_name.empty()) told["tls-server-name"] = cluster.tls_server_name;
    if (!cluster.authority.empty()) told["certificate-authority-data"] = encode_base64(cluster.authority);
    boost::system::error_code ignored;  // it was valid JSON when it was parsed
    if (!plugin.cluster_config.empty()) told["config"] = json::parse(plugin.cluster_config, ignored);
    spec["cluster"] = std::move(told);
  }
  return json::serialize(
      json::object{{"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", std::move(spec)}});
}

}  // namespace carve::codec
