#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/dialects/dialect.h"
#include "codec/node/node_object.h"
#include "core/model/card.h"

namespace carve::node {

/// The names of the extended resources that a Node shows for schedulers, autoscalers and quotas: totals of its cards,
/// never free amounts. Pods request resources by these names.
[[nodiscard]] std::vector<std::string_view> known_totals();

/// The total of these cards under the name, in its own unit: cards, hundredths of a card, MiB, or, for
/// aliyun.com/gpu-mem, the unit of the settings, rounded down for each card (as its pods can use it). By
/// elasticgpu.io/gpu, and by nvidia.com/gpu where HAMi's names are read, many pods share a card: these are slots. A
/// card counts only if its mode permits what is requested by the name.
///   errors  kInvalidArgument: an unknown name; the text lists the known ones
///   shared_by_rancher  the Node has Rancher's label for shared cards
[[nodiscard]] Result<std::string> total_of(std::string_view name, const std::vector<Card>& cards,
                                           const codec::DialectSettings& settings, bool shared_by_rancher = false);

/// "elasticgpu.io/gpu,elasticgpu.io/gpu-core" → the names; empty: none.
///   errors  kInvalidArgument: an unknown name
[[nodiscard]] Result<std::vector<std::string>> total_names(const std::string& words);

/// The Node's annotation that names the totals that agents have set. Only these are removed when they are not wanted
/// any more; numbers of other writers stay.
inline constexpr const char* kTotalsSet = "elasticgpu.io/totals-set";
[[nodiscard]] std::set<std::string> totals_set_on(const codec::NodeObject& node);

}  // namespace carve::node
