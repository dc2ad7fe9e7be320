#include "codec/kubeconfig/exec_plugin.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstddef>

#include "codec/kubeconfig/yaml_fields.h"

namespace carve::codec::kubeconfig_yaml {
namespace {

namespace json = boost::json;
using Terminal = ExecPlugin::Terminal;

constexpr std::string_view kWhere = "user.exec";
constexpr std::string_view kV1 = "client.authentication.k8s.io/v1";
constexpr std::string_view kV1Beta1 = "client.authentication.k8s.io/v1beta1";
constexpr const char* kExtension = "client.authentication.k8s.io/exec";
constexpr std::size_t kDeepest = 24;
constexpr std::size_t kLongest = 64U << 10U;
constexpr std::size_t kLongestHint = 2000;

/// False: the text has a NUL byte, at which the operating system would truncate it.
bool whole(const std::string& text) { return text.find('\0') == std::string::npos; }

/// Without the control characters that move a terminal's cursor or change its colours.
std::string printable(std::string text) {
  std::erase_if(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < ' ' && c != '\n') || byte == 127;
  });
  text.resize(std::min(text.size(), kLongestHint));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

Result<void> read_args(const YAML::Node& exec, ExecPlugin* plugin) {
  const auto args = exec["args"];
  if (!args || args.IsNull()) return {};
  const auto wrong = refused("user.exec.args: expected a list of texts");
  if (!args.IsSequence()) return wrong;
  for (const auto& one : args) {
    if (!one.IsScalar() || !whole(one.Scalar())) return wrong;
    plugin->args.push_back(one.Scalar());
  }
  return {};
}

Result<void> read_environment(const YAML::Node& exec, ExecPlugin* plugin) {
  const auto variables = exec["env"];
  if (!variables || variables.IsNull()) return {};
  const auto wrong = refused("user.exec.env: expected a list of {name, value}, each name without \"=\"");
  if (!variables.IsSequence()) return wrong;
  for (const auto& one : variables) {
    if (!one.IsMap()) return wrong;
    CARVE_TRY(auto name, scalar(one, "name", "user.exec.env"));
    CARVE_TRY(auto value, scalar(one, "value", "user.exec.env"));
    if (name.empty() || name.find('=') != std::string::npos || !whole(name) || !whole(value)) return wrong;
    plugin->environment.emplace_back(std::move(name), std::move(value));
  }
  return {};
}

Result<void> read_terminal(const YAML::Node& exec, ExecPlugin* plugin) {
  CARVE_TRY(const auto mode, scalar(exec, "interactiveMode", kWhere));
  if (mode == "Never" || mode == "IfAvailable" || mode == "Always") {
    plugin->terminal = mode == "Never"    ? Terminal::kNever
                       : mode == "Always" ? Terminal::kAlways
                                          : Terminal::kIfAvailable;
    return {};
  }
  // v1 has no default, so that no plug-in waits for input that cannot be given.
  if (mode.empty() && plugin->api_version == kV1Beta1) return {};
  return refused("user.exec.interactiveMode: " + (mode.empty() ? "missing" : "\"" + mode.substr(0, 60) + "\"") +
                 " (legal: Never, IfAvailable, Always)");
}

/// An unquoted scalar has the type that JSON would give it.
json::value value_of(const YAML::Node& scalar) {
  const std::string& text = scalar.Scalar();
  if (scalar.Tag() != "?") return json::string(text);
  if (text == "true" || text == "false") return text == "true";
  if (text.empty() || text.find_first_not_of("+-.eE0123456789") != std::string::npos) return json::string(text);
  boost::system::error_code wrong;
  auto number = json::parse(text, wrong);
  return wrong ? json::value(json::string(text)) : number;
}

/// `left`: the remaining byte budget. With aliases, few bytes of YAML can expand to many.
bool convert(const YAML::Node& node, std::size_t depth, std::size_t* left, json::value* out) {
  const auto takes = [&](std::size_t bytes) {
    const bool fits = bytes <= *left;
    *left -= std::min(bytes, *left);
    return fits;
  };
  if (depth > kDeepest || !takes(2)) return false;
  if (node.IsScalar()) {
    if (!takes(node.Scalar().size())) return false;
    *out = value_of(node);
    return true;
  }
  if (node.IsSequence()) {
    auto& array = out->emplace_array();
    for (const auto& one : node) {
      if (!convert(one, depth + 1, left, &array.emplace_back(nullptr))) return false;
    }
  } else if (node.IsMap()) {
    auto& object = out->emplace_object();
    for (const auto& entry : node) {
      const auto& key = entry.first;
      if (!key.IsScalar() || !takes(key.Scalar().size()) ||
          !convert(entry.second, depth + 1, left, &object[key.Scalar()]))
        return false;
    }
  }
  return true;
}

}  // namespace

std::string path_in(const std::string& folder, const std::string& text) {
  return text.empty() || text.front() == '/' ? text : folder + text;
}

Result<ExecPlugin> read_exec_plugin(const YAML::Node& exec, const std::string& folder) {
  if (!exec.IsMap()) return refused("user.exec: expected a map");
  ExecPlugin plugin;
  CARVE_TRY(plugin.api_version, scalar(exec, "apiVersion", kWhere));
  if (plugin.api_version != kV1 && plugin.api_version != kV1Beta1) {
    return refused(fmt::format("user.exec.apiVersion: {} (legal: {}, {})",
                               plugin.api_version.empty() ? "missing" : "\"" + plugin.api_version.substr(0, 100) + "\"",
                               kV1, kV1Beta1));
  }
  CARVE_TRY(plugin.command, scalar(exec, "command", kWhere));
  if (plugin.command.empty() || !whole(plugin.command)) {
    return refused("user.exec.command: expected a program's name or path");
  }
  if (plugin.command.find('/') != std::string::npos) plugin.command = path_in(folder, plugin.command);
  CARVE_TRY_VOID(read_args(exec, &plugin));
  CARVE_TRY_VOID(read_environment(exec, &plugin));
  CARVE_TRY_VOID(read_terminal(exec, &plugin));
  CARVE_TRY(const auto wants, scalar(exec, "provideClusterInfo", kWhere));
  if (!wants.empty() && wants != "true" && wants != "false") {
    return refused("user.exec.provideClusterInfo: expected true or false");
  }
  plugin.wants_cluster = wants == "true";
  CARVE_TRY(auto hint, scalar(exec, "installHint", kWhere));
  plugin.install_hint = printable(std::move(hint));
  return plugin;
}

Result<std::string> read_exec_extension(const YAML::Node& cluster) {
  const auto extensions = cluster["extensions"];
  if (!extensions || !extensions.IsSequence()) return std::string();
  for (const auto& one : extensions) {
    if (!one.IsMap()) continue;
    const auto name = one["name"];
    if (!name || !name.IsScalar() || name.Scalar() != kExtension) continue;
    const auto extension = one["extension"];
    if (!extension || extension.IsNull()) return std::string();
    json::value value;
    std::size_t left = kLongest;
    if (!convert(extension, 0, &left, &value)) {
      return refused(fmt::format("cluster.extensions, {}: nested deeper than {}, longer than {} bytes, or not JSON",
                                 kExtension, kDeepest, kLongest));
    }
    return std::string(json::serialize(value));
  }
  return std::string();
}

}  // namespace carve::codec::kubeconfig_yaml
