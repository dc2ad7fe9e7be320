#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/cluster/quota_book.h"
#include "core/history/history.h"

namespace carve::codec {

/// A limit on cards or parts of them: of a ResourceQuota, whose amounts are written as Kubernetes writes them, or of
/// carve-placement, in cards.
struct CardQuota {
  std::string namespace_name;
  std::string quota;     // the object's name
  // "requests.nvidia.com/gpu"; for claims "<class>.deviceclass.resource.k8s.io/devices"; "A100 cards"
  std::string resource;
  std::string used;
  std::string hard;
  bool operator==(const CardQuota&) const = default;
};

/// The limits of a ResourceQuota on resource names that a dialect reads, and on devices of a DeviceClass. Other limits
/// are left out.
///   errors  kInvalidArgument: not a ResourceQuota
[[nodiscard]] Result<std::vector<CardQuota>> parse_card_quotas(std::string_view text);

/// The quotas of carve-placement.
[[nodiscard]] std::vector<CardQuota> card_quotas(const std::vector<QuotaUse>& uses);

/// What the namespaces held and used over a time, and what they may use.
struct Usage {
  std::chrono::seconds since{};
  std::size_t nodes = 0;   // whose agents were asked
  std::size_t silent = 0;  // of these, the ones that did not answer
  std::map<std::string, UsageHours> hours;  // by namespace; "": slices outside Kubernetes
  std::vector<CardQuota> quotas;
  std::string quotas_error;  // why there are no quotas; empty: they are complete
};

/// {"since_seconds", "nodes", "silent_nodes", "quotas_error", "namespaces": [{"name", "card_hours": {"promised",
/// "delivered"}, "gib_hours": {"held", "used"}, "quotas": [{"quota", "resource", "used", "hard"}]}]}
[[nodiscard]] std::string usage_json(const Usage& usage);

}  // namespace carve::codec
