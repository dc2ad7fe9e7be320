#include "adapter/kube/access.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "adapter/process/text_file.h"

namespace carve::kube {
namespace {

constexpr auto kFresh = std::chrono::minutes(1);
constexpr auto kDoubted = std::chrono::seconds(1);
constexpr std::size_t kLargestFile = 1U << 20U;  // one byte more is read, so that the codec detects a longer file
// The folder that the kubelet mounts into every pod.
constexpr std::string_view kAccount = "/var/run/secrets/kubernetes.io/serviceaccount/";

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

Result<std::string> content(const codec::KubeMaterial& material) {
  return material.file.empty() ? material.bytes : process::read_text(material.file);
}

/// Checks a token for use in a header: with a newline the token's file could add headers and requests.
Result<std::string> checked_token(std::string token) {
  token = trimmed(std::move(token));
  for (const char c : token) {
    if (c <= ' ' || c > '~')
      return fail(Code::kInvalidArgument,
                  "token: contains a character that is not legal (legal: printable ASCII without blanks)");
  }
  return token;
}

Result<Credentials> from_pod() {
  const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) {
    return fail(Code::kNotFound,
                "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT: not set, so this process does not "
                "run in a pod; name a kubeconfig with --kubeconfig");
  }
  const std::string_view name(host);
  const auto host_part = name.find(':') == std::string_view::npos ? std::string(name) : fmt::format("[{}]", name);
  Credentials found;
  CARVE_TRY(found.endpoint, parse_server(fmt::format("https://{}:{}", host_part, port)));
  const std::string folder(kAccount);
  auto token = process::read_text(folder + "token");
  if (!token) return fail_in("ServiceAccount's token", token.error());
  CARVE_TRY(found.token, checked_token(std::move(*token)));
  auto authority = process::read_text(folder + "ca.crt");
  if (!authority) return fail_in("ServiceAccount's ca.crt", authority.error());
  found.authority = std::move(*authority);
  return found;
}

std::string joined(const std::vector<std::string>& paths) {
  std::string all;
  for (const auto& path : paths) all += (all.empty() ? "" : ":") + path;
  return all;
}

/// Merges the files. Like kubectl it skips missing ones of several; at least one must exist.
Result<codec::Kubeconfig> merged(const std::vector<std::string>& paths, const std::string& context) {
  std::vector<codec::KubeconfigText> texts;
  for (const auto& path : paths) {
    auto text = process::read_text(path, kLargestFile + 1);
    if (!text && text.error().code == Code::kNotFound && paths.size() > 1) continue;
    if (!text) return fail_in("kubeconfig " + path, text.error());
    texts.push_back({std::move(*text), path});
  }
  if (texts.empty()) return fail(Code::kNotFound, "kubeconfig: none of these files exists: " + joined(paths));
  return codec::merge_kubeconfigs(texts, context);
}

bool same_but_token(const Credentials& a, const Credentials& b) {
  return a.endpoint == b.endpoint && a.authority == b.authority && a.certificate == b.certificate && a.key == b.key;
}

}  // namespace

Result<Endpoint> parse_server(const std::string& server) {
  const auto wrong = [&] {
    return fail(Code::kInvalidArgument,
                "server \"" + server.substr(0, 200) + "\": expected https://host[:port][/path]");
  };
  constexpr std::string_view kScheme = "https://";
  if (!server.starts_with(kScheme)) return wrong();
  auto rest = server.substr(kScheme.size());
  Endpoint found{.host = {}, .port = "443", .tls_name = {}, .base = {}};
  if (const auto slash = rest.find('/'); slash != std::string::npos) {
    found.base = rest.substr(slash);
    rest.resize(slash);
    while (found.base.ends_with('/')) found.base.pop_back();
    if (found.base.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%:/") !=
        std::string::npos) {
      return wrong();
    }
  }
  std::string port;
  if (rest.starts_with('[')) {
    const auto end = rest.find(']');
    if (end == std::string::npos) return wrong();
    found.host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
  } else {
    const auto colon = rest.find(':');
    found.host = rest.substr(0, colon);
    port = colon == std::string::npos ? std::string() : rest.substr(colon);
    if (found.host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") !=
        std::string::npos) {
      return wrong();
    }
  }
  if (found.host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:") !=
      std::string::npos) {
    return wrong();
  }
  if (!port.empty()) {
    found.port = port.substr(1);
    const bool digits = found.port.find_first_not_of("0123456789") == std::string::npos;
    if (port.front() != ':' || found.port.empty() || found.port.size() > 5 || !digits ||
        std::atoi(found.port.c_str()) > 65535) {
      return wrong();
    }
  }
  if (found.host.empty() || found.host.size() > 253) return wrong();
  found.tls_name = found.host;
  return found;
}

Result<Credentials> Access::read() {
  plugin_failed_ = false;
  if (kubeconfigs_.empty()) return from_pod();
  return from_files();
}

Result<Credentials> Access::from_files() {
  CARVE_TRY(const auto config, merged(kubeconfigs_, context_));
  const auto where = joined(kubeconfigs_);
  Credentials found;
  auto endpoint = parse_server(config.server);
  if (!endpoint) return fail_in(where, endpoint.error());
  found.endpoint = std::move(*endpoint);
  if (!config.tls_server_name.empty()) found.endpoint.tls_name = config.tls_server_name;
  const std::pair<const codec::KubeMaterial*, std::string*> parts[] = {{&config.authority, &found.authority},
                                                                      {&config.certificate, &found.certificate},
                                                                      {&config.key, &found.key},
                                                                      {&config.token, &found.token}};
  for (const auto& [material, target] : parts) {
    auto bytes = content(*material);
    if (!bytes) return fail_in(where, bytes.error());
    *target = std::move(*bytes);
  }
  // A token in the kubeconfig has precedence over the plug-in, like in kubectl.
  if (config.exec && trimmed(found.token).empty()) {
    auto said = plugin_.of(*config.exec, {config.server, config.tls_server_name, found.authority});
    if (!said) {
      plugin_failed_ = true;
      return fail_in(where, said.error());
    }
    found.token = std::move(said->token);
    if (found.certificate.empty()) {
      found.certificate = std::move(said->certificate);
      found.key = std::move(said->key);
    }
  }
  CARVE_TRY(found.token, checked_token(std::move(found.token)));
  return found;
}

Result<Credentials> Access::current() {
  const MutexLock lock(mutex_);
  const auto now = clock_.now();
  if (have_ && now < due_ && !plugin_.is_due()) return held_;
  auto found = read();
  if (!found && (!have_ || plugin_failed_)) return found;
  read_at_ = now;
  due_ = now + kFresh;
  if (found) {
    found->generation = held_.generation + (have_ && same_but_token(*found, held_) ? 0 : 1);
    held_ = std::move(*found);
    have_ = true;
  }
  return held_;
}

void Access::doubt_locked() {
  const auto soonest = read_at_ + kDoubted;
  if (due_ > soonest) due_ = soonest;
}

void Access::doubt() {
  const MutexLock lock(mutex_);
  doubt_locked();
}

void Access::refuse(const std::string& token) {
  const MutexLock lock(mutex_);
  if (token != held_.token) return;
  doubt_locked();
  plugin_.refuse();
}

}  // namespace carve::kube
