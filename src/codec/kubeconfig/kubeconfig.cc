#include "codec/kubeconfig/kubeconfig.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <array>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <utility>

namespace carve::codec {
namespace {

constexpr std::size_t kLargest = 1U << 20U;

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

tl::unexpected<Error> refused(std::string what) {
  return fail(Code::kInvalidArgument, "kubeconfig: " + std::move(what));
}

/// A scalar's text; "" when absent.
Result<std::string> scalar(const YAML::Node& map, const char* field, std::string_view where) {
  const auto node = map[field];
  if (!node || node.IsNull()) return std::string();
  if (!node.IsScalar()) return refused(fmt::format("{}.{}: expected text", where, field));
  return node.Scalar();
}

/// `<field>-data` goes before `<field>`, as kubectl does.
Result<KubeMaterial> material(const YAML::Node& map, const std::string& field, std::string_view where) {
  KubeMaterial found;
  CARVE_TRY(const auto data, scalar(map, (field + "-data").c_str(), where));
  if (!data.empty()) {
    auto bytes = decode_base64(data);
    if (!bytes) return refused(fmt::format("{}.{}-data: {}", where, field, bytes.error().what));
    found.bytes = std::move(*bytes);
    return found;
  }
  CARVE_TRY(found.file, scalar(map, field.c_str(), where));
  return found;
}

/// The inner map `inner` of the entry called `name` in the list `list`.
Result<YAML::Node> named(const YAML::Node& root, const char* list, const char* inner, const std::string& name) {
  const auto entries = root[list];
  if (entries && entries.IsSequence()) {
    for (const auto& entry : entries) {
      if (!entry.IsMap()) continue;
      const auto own = entry["name"];
      if (!own || !own.IsScalar() || own.Scalar() != name) continue;
      const auto found = entry[inner];
      if (found && found.IsMap()) return YAML::Node(found);
      if (!found || found.IsNull()) return YAML::Node(YAML::NodeType::Map);
      return refused(fmt::format("{}.{}: expected a map", list, inner));
    }
  }
  return refused(fmt::format("{}: none is called \"{}\"", list, name.substr(0, 100)));
}

bool is_true(const YAML::Node& map, const char* field) {
  const auto node = map[field];
  return node && node.IsScalar() && node.as<bool>(false);
}

Result<void> supported(const YAML::Node& map, std::string_view where, std::initializer_list<const char*> foreign) {
  for (const char* field : foreign) {
    const auto node = map[field];
    if (!node || node.IsNull() || (node.IsScalar() && node.Scalar().empty())) continue;
    return refused(fmt::format("{}.{} is not supported (legal: token, tokenFile, client-certificate with "
                               "client-key)",
                               where, field));
  }
  return {};
}

Result<void> read_cluster(const YAML::Node& cluster, Kubeconfig* config) {
  CARVE_TRY(config->server, scalar(cluster, "server", "cluster"));
  if (!config->server.starts_with("https://") || config->server.size() > 512) {
    return refused("cluster.server: expected https://host[:port][/path]");
  }
  if (is_true(cluster, "insecure-skip-tls-verify")) {
    return refused("cluster.insecure-skip-tls-verify: true is not supported; give certificate-authority");
  }
  CARVE_TRY(const auto proxy, scalar(cluster, "proxy-url", "cluster"));
  if (!proxy.empty()) return refused("cluster.proxy-url is not supported");
  CARVE_TRY(config->tls_server_name, scalar(cluster, "tls-server-name", "cluster"));
  CARVE_TRY(config->authority, material(cluster, "certificate-authority", "cluster"));
  return {};
}

Result<void> read_user(const YAML::Node& user, Kubeconfig* config) {
  CARVE_TRY_VOID(supported(user, "user", {"exec", "auth-provider", "username", "password", "as", "as-uid",
                                          "as-groups", "as-user-extra"}));
  CARVE_TRY(config->certificate, material(user, "client-certificate", "user"));
  CARVE_TRY(config->key, material(user, "client-key", "user"));
  if (config->certificate.empty() != config->key.empty()) {
    return refused("user: client-certificate and client-key go together");
  }
  // The file wins over the text beside it, as in kubectl: it is the one that is renewed.
  CARVE_TRY(config->token.file, scalar(user, "tokenFile", "user"));
  if (config->token.file.empty()) {
    CARVE_TRY(config->token.bytes, scalar(user, "token", "user"));
  }
  return {};
}

Result<Kubeconfig> read(const YAML::Node& root) {
  if (!root.IsMap()) return refused("expected a map with clusters, users, contexts, current-context");
  CARVE_TRY(const auto current, scalar(root, "current-context", "kubeconfig"));
  if (current.empty()) return refused("current-context: expected the name of a context");
  CARVE_TRY(const auto context, named(root, "contexts", "context", current));
  CARVE_TRY(const auto cluster_name, scalar(context, "cluster", "context"));
  CARVE_TRY(const auto user_name, scalar(context, "user", "context"));
  Kubeconfig config;
  CARVE_TRY(const auto cluster, named(root, "clusters", "cluster", cluster_name));
  CARVE_TRY_VOID(read_cluster(cluster, &config));
  if (!user_name.empty()) {
    CARVE_TRY(const auto user, named(root, "users", "user", user_name));
    CARVE_TRY_VOID(read_user(user, &config));
  }
  return config;
}

}  // namespace

Result<std::string> decode_base64(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t bits = 0;
  int have = 0;
  int padding = 0;
  for (const char c : text) {
    if (is_space(c)) continue;
    if (c == '=') {
      ++padding;
    } else {
      const int value = base64_value(c);
      if (value < 0 || padding > 0) return fail(Code::kInvalidArgument, "expected base64");
      bits = bits << 6U | static_cast<std::uint32_t>(value);
    }
    if (++have < 4) continue;
    if (padding > 2) return fail(Code::kInvalidArgument, "expected base64");
    bits <<= 6U * static_cast<unsigned>(padding);
    const std::array<char, 3> bytes{static_cast<char>(bits >> 16U & 255U), static_cast<char>(bits >> 8U & 255U),
                                    static_cast<char>(bits & 255U)};
    out.append(bytes.data(), 3 - static_cast<std::size_t>(padding));
    bits = 0;
    have = 0;
  }
  if (have != 0) return fail(Code::kInvalidArgument, "expected base64: cut short");
  return out;
}

Result<Kubeconfig> parse_kubeconfig(std::string_view text) {
  if (text.size() > kLargest) return refused(fmt::format("{} bytes; legal are at most {}", text.size(), kLargest));
  try {
    return read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    // Where, not what: the parser's words may quote the line, and the line may be a token.
    return refused(error.mark.is_null() ? "not YAML" : fmt::format("not YAML at line {}", error.mark.line + 1));
  } catch (const std::exception&) {
    return refused("not YAML");
  }
}

}  // namespace carve::codec
