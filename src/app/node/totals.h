#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "codec/node/node_object.h"
#include "core/model/card.h"

namespace carve::node {

/// Extended resources that a Node shows, so that schedulers, autoscalers and quotas see how much there is at most:
/// totals of the cards, never what is free. The names are those in which pods ask.
[[nodiscard]] std::vector<std::string_view> known_totals();

/// What a Node with these cards shows under the name, in the name's own unit: cards, hundredths of a card, MiB, or, for
/// aliyun.com/gpu-mem, `gpushare_unit`, of each card rounded down (as whoever asks in it can use it).
///   errors  kInvalidArgument: an unknown name; it says which are known
[[nodiscard]] Result<std::string> total_of(std::string_view name, const std::vector<Card>& cards, Bytes gpushare_unit);

/// "elasticgpu.io/gpu,elasticgpu.io/gpu-core" → the names; empty: none.
///   errors  kInvalidArgument: an unknown name
[[nodiscard]] Result<std::vector<std::string>> total_names(const std::string& words);

/// An annotation of the Node: the totals that an agent has set there. What was set and is not wanted any more is taken
/// away; a number that anybody else set is not.
inline constexpr const char* kTotalsSet = "elasticgpu.io/totals-set";
[[nodiscard]] std::set<std::string> totals_set_on(const codec::NodeObject& node);

}  // namespace carve::node
