#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

// What a doctor reads of an installation's own objects. Tolerant: what is missing reads as nothing.
namespace carve::codec {

/// A Deployment or a DaemonSet: how many pods it wants, and how many are ready.
struct Workload {
  std::string name;
  std::int64_t wanted = 0;
  std::int64_t ready = 0;
  std::int64_t updated = 0;  // as its template is now
};

///   errors  kInvalidArgument: no JSON, or without a name
[[nodiscard]] Result<Workload> parse_workload(std::string_view text);

/// Of a Pod or a Node: its condition Ready is True.
[[nodiscard]] bool is_ready(std::string_view text);

/// Of a Node: status.allocatable of a resource, as the API server writes it; empty: none.
[[nodiscard]] std::string allocatable_of(std::string_view node, std::string_view resource);

/// Of a Node: a label says that it has NVIDIA's cards, of Carve's own or of those that others put on nodes.
[[nodiscard]] bool labelled_with_cards(std::string_view node);

/// Of a webhook configuration: every webhook of it has a caBundle (and there is one).
[[nodiscard]] bool has_authority(std::string_view webhook_configuration);

/// Of GET /version: "1.36.3", and the minor, -1 when it cannot be read.
struct ServerVersion {
  std::string text;
  int minor = -1;
};
[[nodiscard]] ServerVersion parse_server_version(std::string_view text);

}  // namespace carve::codec
