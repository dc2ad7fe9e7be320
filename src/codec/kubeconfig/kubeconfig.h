#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/kubeconfig/exec_plugin.h"

namespace carve::codec {

/// Bytes that are in the file (base64 in the file, decoded here) or in another file.
struct KubeMaterial {
  std::string bytes;
  std::string file;  // a relative path is relative to the kubeconfig's folder
  [[nodiscard]] bool empty() const { return bytes.empty() && file.empty(); }
};

/// One context of a kubeconfig: the API server and the client's credentials.
struct Kubeconfig {
  std::string server;           // "https://host[:port][/path]"
  std::string tls_server_name;  // the name that the server's certificate must have; empty: the server's host
  KubeMaterial authority;       // PEM; empty: the system's authorities
  KubeMaterial certificate;     // PEM; with `key`, or neither
  KubeMaterial key;             // PEM
  KubeMaterial token;           // a bearer token; the file is re-read repeatedly
  std::optional<ExecPlugin> exec;  // provides the credentials that token and certificate do not
};

/// The contents of a kubeconfig file.
struct KubeconfigText {
  std::string text;
  std::string path;  // the prefix of its errors; relative paths in it are relative to its folder. "": neither
};

/// Reads the current context of kubeconfigs, merged like kubectl does: the first file with a current-context counts,
/// and the first file with a cluster, user or context of a name; entries are not combined. Unknown fields are skipped.
/// Unsupported fields that change the trusted server or the identity of the client (insecure-skip-tls-verify,
/// auth-provider, user and password, impersonation, proxy-url) are refused by name. Errors never quote a credential.
///   in      context: the context to read instead of the current one; empty: the current one
///   errors  kInvalidArgument: `files` is empty, or a faulty field; the text has the file, the field and what is legal
///   cost    one parse of each file, of at most 1 MiB
[[nodiscard]] Result<Kubeconfig> merge_kubeconfigs(std::span<const KubeconfigText> files,
                                                   const std::string& context = {});
/// The same for one file with an unknown path.
[[nodiscard]] Result<Kubeconfig> parse_kubeconfig(std::string_view text);

/// The files of $KUBECONFIG, "a:b:c": each once, without empty ones.
[[nodiscard]] std::vector<std::string> kubeconfig_list(std::string_view list);

}  // namespace carve::codec
