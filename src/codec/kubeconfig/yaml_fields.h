#pragma once

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "codec/kubeconfig/exec_plugin.h"

// What the .cc files of this folder share to read YAML. No other file includes it: yaml-cpp is used only here.
namespace carve::codec::kubeconfig_yaml {

[[nodiscard]] inline tl::unexpected<Error> refused(std::string what) {
  return fail(Code::kInvalidArgument, "kubeconfig: " + std::move(what));
}

/// A scalar's text; "" when absent.
[[nodiscard]] inline Result<std::string> scalar(const YAML::Node& map, const char* field, std::string_view where) {
  const auto node = map[field];
  if (!node || node.IsNull()) return std::string();
  if (!node.IsScalar()) return refused(fmt::format("{}.{}: expected text", where, field));
  return node.Scalar();
}

/// `text` as a path: relative to `folder` ("" or with a trailing slash) when it is relative; "" stays "".
[[nodiscard]] std::string path_in(const std::string& folder, const std::string& text);

/// Reads `user.exec`, without `cluster_config`, which is in another place.
///   errors  kInvalidArgument: the field and what is legal; no argument and no value is quoted
[[nodiscard]] Result<ExecPlugin> read_exec_plugin(const YAML::Node& exec, const std::string& folder);
/// The cluster's extension with the name client.authentication.k8s.io/exec as JSON; "": there is none.
///   errors  kInvalidArgument: it is nested deeper than 24 or is longer than 64 KiB
[[nodiscard]] Result<std::string> read_exec_extension(const YAML::Node& cluster);

}  // namespace carve::codec::kubeconfig_yaml
