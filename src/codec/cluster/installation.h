#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// The objects of an installation that `carve doctor` reads. Tolerant: what is missing reads as empty.
namespace carve::codec {

/// A Deployment or a DaemonSet: the number of desired pods and of ready pods.
struct Workload {
  std::string name;
  std::int64_t wanted = 0;
  std::int64_t ready = 0;
  std::int64_t updated = 0;  // pods with the current template
};

///   errors  kInvalidArgument: not JSON, or without a name
[[nodiscard]] Result<Workload> parse_workload(std::string_view text);

/// For a Pod or a Node: true when its condition Ready is True.
[[nodiscard]] bool is_ready(std::string_view text);

/// For a Node: status.allocatable of a resource, as the API server writes it; empty: none.
[[nodiscard]] std::string allocatable_of(std::string_view node, std::string_view resource);

/// For a Node: true when a label, Carve's or another tool's, says that it has NVIDIA cards.
[[nodiscard]] bool labelled_with_cards(std::string_view node);

/// For a webhook configuration: true when it has webhooks and each of them has a caBundle.
[[nodiscard]] bool has_authority(std::string_view webhook_configuration);

/// For a Pod: how long it has been in the states in which pods get stuck.
struct PodWaits {
  bool pending = false;
  std::optional<std::int64_t> bound_s;        // seconds since it got its node; nullopt: it has none
  std::optional<std::int64_t> terminating_s;  // seconds since its grace period ended; nullopt: it is not being deleted
  std::vector<std::string> finalizers;
};
[[nodiscard]] PodWaits pod_waits(std::string_view pod, std::int64_t now_unix_s);

/// For GET /version: "1.36.3", and its minor version, -1 when it cannot be read.
struct ServerVersion {
  std::string text;
  int minor = -1;
};
[[nodiscard]] ServerVersion parse_server_version(std::string_view text);

}  // namespace carve::codec
