#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "adapter/tls/rotation.h"
#include "base/result.h"

// The JSON of the objects that certificates live in.
namespace carve::tls {

/// A Secret. `data` is decoded; an entry that is no base64 is missing. Holds secrets.
struct Secret {
  std::string version;  // metadata.resourceVersion; empty: it is not there
  std::map<std::string, std::string> data;
};
///   errors  kInvalidArgument: no JSON, or without a resourceVersion
[[nodiscard]] Result<Secret> parse_secret(std::string_view text);
/// For create (no version) or replace (then `existing` gives labels and the like, and the version is the precondition).
[[nodiscard]] std::string secret_json(const Secret& secret, std::string_view space, std::string_view name,
                                      std::string_view existing);

/// ca.crt, ca.key, next.key, tls.crt, tls.key. What is there and is none of it is left out.
[[nodiscard]] Kept kept_in(const Secret& secret);
void keep(const Kept& kept, Secret* secret);
/// tls.crt and tls.key.
[[nodiscard]] Pair pair_in(const Secret& secret);

/// A JSON patch that gives `authorities` (PEM) to every webhook of the configuration whose service is
/// `space`/`service`; nullopt: all have them. It fails when the configuration is changed meanwhile.
///   errors  kInvalidArgument: no JSON
[[nodiscard]] Result<std::optional<std::string>> webhook_patch(std::string_view configuration, std::string_view space,
                                                               std::string_view service,
                                                               const std::string& authorities);

}  // namespace carve::tls
