#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/kubeconfig/exec_plugin.h"

namespace carve::codec {

/// Bytes that stand in the file (base64 there, decoded here) or in another file.
struct KubeMaterial {
  std::string bytes;
  std::string file;  // a relative one in a kubeconfig is of that kubeconfig's folder
  [[nodiscard]] bool empty() const { return bytes.empty() && file.empty(); }
};

/// One context of a kubeconfig: where the API server is and who we are there.
struct Kubeconfig {
  std::string server;           // "https://host[:port][/path]"
  std::string tls_server_name;  // the name the server's certificate must carry; empty: the server's host
  KubeMaterial authority;       // PEM; empty: the system's authorities
  KubeMaterial certificate;     // PEM; with `key`, or neither
  KubeMaterial key;             // PEM
  KubeMaterial token;           // a bearer token; the file is read again and again
  std::optional<ExecPlugin> exec;  // says what token and certificate leave open
};

/// A kubeconfig that was read.
struct KubeconfigText {
  std::string text;
  std::string path;  // what stands before its errors; relative paths in it are of this path's folder. "": neither
};

/// Reads the current context of kubeconfigs as kubectl merges them: the first file that says current-context, and the
/// first that has a cluster, user or context of a name, count, each whole. Unknown fields are skipped; what would
/// change whom we trust or who we are and is not supported (insecure-skip-tls-verify, auth-provider, user and password,
/// impersonation, proxy-url) is refused by name. Errors never quote a credential.
///   errors  kInvalidArgument: the file, the field and what is legal; kInvalidArgument too when `files` is empty
///   cost    one parse of each file, of at most 1 MiB
[[nodiscard]] Result<Kubeconfig> merge_kubeconfigs(std::span<const KubeconfigText> files);
/// The same of one file whose path nobody knows.
[[nodiscard]] Result<Kubeconfig> parse_kubeconfig(std::string_view text);

/// The files of $KUBECONFIG, "a:b:c": each once, the empty ones left away.
[[nodiscard]] std::vector<std::string> kubeconfig_list(std::string_view list);

}  // namespace carve::codec
