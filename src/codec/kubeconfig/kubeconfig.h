#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// Bytes that stand in the file (base64 there, decoded here) or in another file.
struct KubeMaterial {
  std::string bytes;
  std::string file;  // as written; a relative one is relative to the kubeconfig's folder
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
};

/// Reads the current context of a kubeconfig. Unknown fields are skipped; what would change whom we trust or
/// who we are and is not supported (insecure-skip-tls-verify, exec, auth-provider, user and password,
/// impersonation, proxy-url) is refused by name. Errors never quote a credential.
///   errors  kInvalidArgument: the field and what is legal
///   cost    one parse of a file of at most 1 MiB
[[nodiscard]] Result<Kubeconfig> parse_kubeconfig(std::string_view text);

/// Standard base64 with padding; white space between is skipped.
///   errors  kInvalidArgument
[[nodiscard]] Result<std::string> decode_base64(std::string_view text);

}  // namespace carve::codec
