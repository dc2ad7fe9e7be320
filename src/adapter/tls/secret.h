#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "adapter/tls/rotation.h"
#include "base/result.h"

// The JSON of the objects that contain certificates.
namespace carve::tls {

/// A Secret. `data` is decoded; entries that are not base64 are left out. Contains secrets.
struct Secret {
  std::string version;  // metadata.resourceVersion; empty: the Secret does not exist
  std::map<std::string, std::string> data;
};
///   errors  kInvalidArgument: not JSON, or no resourceVersion
[[nodiscard]] Result<Secret> parse_secret(std::string_view text);
/// The body for create (`secret.version` is empty) or replace (labels and other fields are those of `existing`, and the
/// version is the precondition).
[[nodiscard]] std::string secret_json(const Secret& secret, std::string_view namespace_name, std::string_view name,
                                      std::string_view existing);

/// Reads ca.crt, ca.key, next.key, tls.crt and tls.key. Other entries are ignored.
[[nodiscard]] Kept kept_in(const Secret& secret);
void keep(const Kept& kept, Secret* secret);
/// Reads tls.crt and tls.key.
[[nodiscard]] Pair pair_in(const Secret& secret);

/// A JSON patch that sets caBundle to `authorities` (PEM) in every webhook of the configuration that calls the
/// service `namespace_name`/`service`; nullopt: all have it. The API server refuses the patch if the configuration
/// has changed meanwhile.
///   errors  kInvalidArgument: not JSON
[[nodiscard]] Result<std::optional<std::string>> webhook_patch(std::string_view configuration,
                                                               std::string_view namespace_name,
                                                               std::string_view service,
                                                               const std::string& authorities);

}  // namespace carve::tls
