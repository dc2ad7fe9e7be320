#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/kubeconfig/exec_plugin.h"

// The messages between Carve and a credential plug-in: ExecCredential of client.authentication.k8s.io, in both
// directions.
namespace carve::codec {

/// The answer of a plug-in. It holds secrets: never logged, never part of an Error.
struct ExecCredential {
  std::string token;        // a bearer token; empty: none
  std::string certificate;  // PEM; with `key`, or neither
  std::string key;          // PEM
  std::optional<std::int64_t> expires_unix_s;  // nullopt: valid until the server refuses it
};

/// Parses a plug-in's standard output. No error quotes it.
///   errors  kInvalidArgument: not an ExecCredential of `api_version`, or a faulty field; the text says what is legal
///   cost    one parse
[[nodiscard]] Result<ExecCredential> parse_exec_credential(std::string_view text, std::string_view api_version);

/// The cluster data that a plug-in gets when it requests it.
struct ExecCluster {
  std::string server;
  std::string tls_server_name;  // "": the server's host
  std::string authority;        // PEM; "": the system's authorities

  friend bool operator==(const ExecCluster&, const ExecCluster&) = default;
};

/// The value of KUBERNETES_EXEC_INFO. It contains `cluster` where the plug-in requests it. `interactive`: the plug-in's
/// standard input is a terminal.
[[nodiscard]] std::string exec_info(const ExecPlugin& plugin, const ExecCluster& cluster, bool interactive);

}  // namespace carve::codec
