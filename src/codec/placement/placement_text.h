#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"
#include "core/policy/rules.h"

namespace carve::codec {

/// The annotation by which a pod says its own preference.
inline constexpr std::string_view kPlacementAnnotation = "elasticgpu.io/placement";

/// "binpack" for both rankings, or each by its name: "node:spread", "card:binpack", "node:spread,card:binpack".
///   errors  kInvalidArgument: with the value and what is legal
[[nodiscard]] Result<PolicyChoice> parse_policy_choice(std::string_view value);
/// What parse_policy_choice() reads; empty where nothing is said.
[[nodiscard]] std::string to_text(const PolicyChoice& choice);

/// Lines of `key = value`, # begins a comment; each key once:
///   cluster = CHOICE
///   pool.NAME.nodes = LABEL=VALUE[,LABEL=VALUE…]   the nodes with all of these labels
///   pool.NAME = CHOICE                             a node is in the first pool, as written here, that selects it
///   namespace.NAME = CHOICE
///   errors  kInvalidArgument: every line that is wrong, as "placement.conf:LINE: KEY: …"; a pool without nodes or
///           without a choice; more than 100 pools (each filter call looks at them node by node)
[[nodiscard]] Result<PlacementRules> parse_placement_rules(std::string_view text);
/// Text of which parse_placement_rules() makes the same.
[[nodiscard]] std::string to_text(const PlacementRules& rules);

/// What the pod prefers; empty where it says nothing.
///   errors  kInvalidArgument: the annotation is nonsense: it names it, the value and what is legal
[[nodiscard]] Result<PolicyChoice> placement_of(const PodAsk& pod);

}  // namespace carve::codec
