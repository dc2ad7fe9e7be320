#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace carve::codec {

/// A program that provides credentials: `user.exec` of a kubeconfig. Arguments and environment may hold secrets.
struct ExecPlugin {
  enum class Terminal : std::uint8_t { kNever, kIfAvailable, kAlways };  // whether it may prompt the user

  std::string command;  // a name that is looked up in PATH; with a slash it is a path, and a relative one is relative
                        // to the kubeconfig's folder
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> environment;  // added to the process's own environment
  std::string api_version;  // the version of its answers: "client.authentication.k8s.io/v1" or ".../v1beta1"
  Terminal terminal = Terminal::kIfAvailable;
  bool wants_cluster = false;
  std::string install_hint;    // shown to the user when the program fails; printable
  std::string cluster_config;  // JSON: the cluster's extension for plug-ins; empty: none, or not requested

  friend bool operator==(const ExecPlugin&, const ExecPlugin&) = default;
};

}  // namespace carve::codec
