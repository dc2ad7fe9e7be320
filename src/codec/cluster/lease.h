#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carve::codec {

/// A coordination.k8s.io/v1 Lease: which replica leads.
struct Lease {
  std::string namespace_name;
  std::string name;
  std::string version;  // resourceVersion; empty: to be created
  std::string holder;   // empty: no holder
  std::int64_t seconds = 0;
  std::string acquired;  // RFC 3339 with microseconds
  std::string renewed;
  std::int64_t transitions = 0;
  friend bool operator==(const Lease&, const Lease&) = default;
};

/// Seconds from an RFC 3339 time in UTC ("2026-01-01T00:00:00Z", with or without a fraction) to `now_unix_s`; nullopt:
/// not such a time.
[[nodiscard]] std::optional<std::int64_t> seconds_since(const std::string& rfc3339, std::int64_t now_unix_s);

/// Tolerant.
///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<Lease> parse_lease(std::string_view text);
/// Seconds since its renewal, by a clock that may differ from the writer's; nullopt: never renewed, or not a time.
[[nodiscard]] std::optional<std::int64_t> seconds_since_renewal(const Lease& lease, std::int64_t now_unix_s);
/// For create and replace. With `version`, the server refuses when another client has written meanwhile.
[[nodiscard]] std::string encode_lease(const Lease& lease);

}  // namespace carve::codec
