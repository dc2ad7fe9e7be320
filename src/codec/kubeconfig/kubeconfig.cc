#include "codec/kubeconfig/kubeconfig.h"

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <utility>

#include "codec/base64.h"
#include "codec/kubeconfig/yaml_fields.h"

namespace carve::codec {
namespace {

using kubeconfig_yaml::path_in;
using kubeconfig_yaml::refused;
using kubeconfig_yaml::scalar;

constexpr std::size_t kLargest = 1U << 20U;

struct File {
  YAML::Node root;  // a map
  std::string path;
  std::string folder;  // "" or with a trailing slash
};

/// An entry of a list, and the file that contains it.
struct Entry {
  YAML::Node map;
  const File* file;
};

tl::unexpected<Error> in_file(const std::string& path, Error error) {
  if (path.empty()) return tl::unexpected(std::move(error));
  return fail_in(path, std::move(error));
}

/// `<field>-data` takes precedence over `<field>`, as in kubectl.
Result<KubeMaterial> material(const Entry& entry, const std::string& field, std::string_view where) {
  const auto& map = entry.map;
  KubeMaterial found;
  CARVE_TRY(const auto data, scalar(map, (field + "-data").c_str(), where));
  if (!data.empty()) {
    auto bytes = decode_base64(data);
    if (!bytes) return refused(fmt::format("{}.{}-data: {}", where, field, bytes.error().what));
    found.bytes = std::move(*bytes);
    return found;
  }
  CARVE_TRY(const auto file, scalar(map, field.c_str(), where));
  found.file = path_in(entry.file->folder, file);
  return found;
}

/// The map `inner` of the first entry with the name `name` in the lists `list`.
Result<Entry> named(const std::vector<File>& files, const char* list, const char* inner, const std::string& name,
                    const std::string& all) {
  for (const auto& file : files) {
    const auto entries = file.root[list];
    if (!entries || !entries.IsSequence()) continue;
    for (const auto& entry : entries) {
      if (!entry.IsMap()) continue;
      const auto own = entry["name"];
      if (!own || !own.IsScalar() || own.Scalar() != name) continue;
      const auto found = entry[inner];
      if (found && found.IsMap()) return Entry{found, &file};
      if (!found || found.IsNull()) return Entry{YAML::Node(YAML::NodeType::Map), &file};
      return in_file(file.path, refused(fmt::format("{}.{}: expected a map", list, inner)).value());
    }
  }
  return in_file(all, refused(fmt::format("{}: no entry has the name \"{}\"", list, name.substr(0, 100))).value());
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
                               "client-key, exec)",
                               where, field));
  }
  return {};
}

Result<void> read_cluster(const Entry& entry, Kubeconfig* config) {
  const auto& cluster = entry.map;
  CARVE_TRY(config->server, scalar(cluster, "server", "cluster"));
  if (!config->server.starts_with("https://") || config->server.size() > 512) {
    return refused("cluster.server: expected https://host[:port][/path]");
  }
  if (is_true(cluster, "insecure-skip-tls-verify")) {
    return refused("cluster.insecure-skip-tls-verify: true is not supported; set certificate-authority");
  }
  CARVE_TRY(const auto proxy, scalar(cluster, "proxy-url", "cluster"));
  if (!proxy.empty()) return refused("cluster.proxy-url is not supported");
  CARVE_TRY(config->tls_server_name, scalar(cluster, "tls-server-name", "cluster"));
  CARVE_TRY(config->authority, material(entry, "certificate-authority", "cluster"));
  return {};
}

Result<void> read_user(const Entry& entry, Kubeconfig* config) {
  const auto& user = entry.map;
  CARVE_TRY_VOID(supported(user, "user", {"auth-provider", "username", "password", "as", "as-uid", "as-groups",
                                          "as-user-extra"}));
  CARVE_TRY(config->certificate, material(entry, "client-certificate", "user"));
  CARVE_TRY(config->key, material(entry, "client-key", "user"));
  if (config->certificate.empty() != config->key.empty()) {
    return refused("user: client-certificate and client-key must be set together");
  }
  // The file takes precedence over the inline token, as in kubectl: the file is the one that is renewed.
  CARVE_TRY(const auto file, scalar(user, "tokenFile", "user"));
  config->token.file = path_in(entry.file->folder, file);
  if (config->token.file.empty()) {
    CARVE_TRY(config->token.bytes, scalar(user, "token", "user"));
  }
  if (const auto exec = user["exec"]; exec && !exec.IsNull()) {
    CARVE_TRY(config->exec, kubeconfig_yaml::read_exec_plugin(exec, entry.file->folder));
  }
  return {};
}

Result<Kubeconfig> read_context(const std::vector<File>& files, const Entry& context, const std::string& all) {
  CARVE_TRY(const auto cluster_name, scalar(context.map, "cluster", "context"));
  CARVE_TRY(const auto user_name, scalar(context.map, "user", "context"));
  Kubeconfig config;
  CARVE_TRY(const auto cluster, named(files, "clusters", "cluster", cluster_name, all));
  if (auto done = read_cluster(cluster, &config); !done) return in_file(cluster.file->path, done.error());
  if (user_name.empty()) return config;
  CARVE_TRY(const auto user, named(files, "users", "user", user_name, all));
  if (auto done = read_user(user, &config); !done) return in_file(user.file->path, done.error());
  if (config.exec && config.exec->wants_cluster) {
    auto extension = kubeconfig_yaml::read_exec_extension(cluster.map);
    if (!extension) return in_file(cluster.file->path, extension.error());
    config.exec->cluster_config = std::move(*extension);
  }
  return config;
}

Result<Kubeconfig> read(const std::vector<File>& files, const std::string& all, const std::string& wanted) {
  if (!wanted.empty()) {
    CARVE_TRY(const auto context, named(files, "contexts", "context", wanted, all));
    return read_context(files, context, all);
  }
  for (const auto& file : files) {
    auto current = scalar(file.root, "current-context", "kubeconfig");
    if (!current) return in_file(file.path, current.error());
    if (current->empty()) continue;
    CARVE_TRY(const auto context, named(files, "contexts", "context", *current, all));
    return read_context(files, context, all);
  }
  return in_file(all, refused("current-context: expected the name of a context").value());
}

/// The map of a file; empty for an empty file.
Result<YAML::Node> parsed_file(const KubeconfigText& file) {
  if (file.text.size() > kLargest) {
    return refused(fmt::format("{} bytes; legal: at most {}", file.text.size(), kLargest));
  }
  try {
    auto root = YAML::Load(file.text);
    if (root.IsMap()) return root;
    if (root.IsNull()) return YAML::Node(YAML::NodeType::Map);
  } catch (const YAML::Exception& error) {
    // Only the position: the parser's message may quote the line, and the line may be a token.
    return refused(error.mark.is_null() ? "not YAML" : fmt::format("not YAML at line {}", error.mark.line + 1));
  } catch (const std::exception&) {
    return refused("not YAML");
  }
  return refused("expected a map with clusters, users, contexts, current-context");
}

}  // namespace

Result<Kubeconfig> merge_kubeconfigs(std::span<const KubeconfigText> files, const std::string& context) {
  std::vector<File> parsed;
  std::string all;
  for (const auto& file : files) {
    auto root = parsed_file(file);
    if (!root) return in_file(file.path, root.error());
    const auto slash = file.path.rfind('/');
    parsed.push_back({std::move(*root), file.path, slash == std::string::npos ? "" : file.path.substr(0, slash + 1)});
    all += (all.empty() ? "" : ":") + file.path;
  }
  try {
    return read(parsed, all, context);
  } catch (const std::exception&) {  // a list in place of a map, or similar
    return in_file(all, refused("does not have the structure of a kubeconfig").value());
  }
}

Result<Kubeconfig> parse_kubeconfig(std::string_view text) {
  const KubeconfigText file{std::string(text), ""};
  return merge_kubeconfigs({&file, 1});
}

std::vector<std::string> kubeconfig_list(std::string_view list) {
  std::vector<std::string> files;
  while (!list.empty()) {
    const auto colon = list.find(':');
    std::string one(list.substr(0, colon));
    list = colon == std::string_view::npos ? std::string_view() : list.substr(colon + 1);
    if (!one.empty() && std::find(files.begin(), files.end(), one) == files.end()) files.push_back(std::move(one));
  }
  return files;
}

}  // namespace carve::codec
