#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/kubeconfig/exec_plugin.h"

// What is said between us and a credential plug-in: ExecCredential of client.authentication.k8s.io, both ways.
namespace carve::codec {

/// What a plug-in answered. Holds secrets: never logged, never part of an Error.
struct ExecCredential {
  std::string token;        // a bearer token; empty: none
  std::string certificate;  // PEM; with `key`, or neither
  std::string key;          // PEM
  std::optional<std::int64_t> expires_unix_s;  // nullopt: when the server no longer takes it
};

/// A plug-in's standard output. No error quotes it.
///   errors  kInvalidArgument: not an ExecCredential of `api_version`, or the field and what is legal
///   cost    one parse
[[nodiscard]] Result<ExecCredential> parse_exec_credential(std::string_view text, std::string_view api_version);

/// What a plug-in is told of the cluster when it asks for it.
struct ExecCluster {
  std::string server;
  std::string tls_server_name;  // "": the server's host
  std::string authority;        // PEM; "": the system's authorities

  friend bool operator==(const ExecCluster&, const ExecCluster&) = default;
};

/// KUBERNETES_EXEC_INFO. `cluster` is told where the plug-in wants it; `interactive`: its standard input is a terminal.
[[nodiscard]] std::string exec_info(const ExecPlugin& plugin, const ExecCluster& cluster, bool interactive);

}  // namespace carve::codec
