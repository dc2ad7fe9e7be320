#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace carve::codec {

/// A program that says who we are: `user.exec` of a kubeconfig. Arguments and environment may hold secrets.
struct ExecPlugin {
  enum class Terminal : std::uint8_t { kNever, kIfAvailable, kAlways };  // whether it may ask a person

  std::string command;  // a name that is looked for in PATH; with a slash a path, that of the kubeconfig's folder
                        // where it is relative
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string api_version;  // "client.authentication.k8s.io/v1" or ".../v1beta1": what it must answer in
  Terminal terminal = Terminal::kIfAvailable;
  bool wants_cluster = false;
  std::string install_hint;    // for a person whom the program fails; printable
  std::string cluster_config;  // JSON: the cluster's extension for plug-ins; empty: none, or it wants no cluster

  friend bool operator==(const ExecPlugin&, const ExecPlugin&) = default;
};

}  // namespace carve::codec
