#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/dialects/pod_ask.h"
#include "core/policy/rules.h"

namespace carve::codec {

/// The annotation by which a pod sets its own preference.
inline constexpr std::string_view kPlacementAnnotation = "elasticgpu.io/placement";

/// "binpack" for both rankings, or each by its name: "node:spread", "card:binpack", "node:spread,card:binpack".
///   errors  kInvalidArgument: with the value and what is legal
[[nodiscard]] Result<PolicyChoice> parse_policy_choice(std::string_view value);
/// The text that parse_policy_choice() reads back; empty where the choice is empty.
[[nodiscard]] std::string to_text(const PolicyChoice& choice);

/// Lines of `key = value`; # begins a comment; each key at most once:
///   cluster = CHOICE
///   pool.NAME.nodes = LABEL=VALUE[,LABEL=VALUE…]   the nodes with all of these labels
///   pool.NAME = CHOICE                             a node belongs to the first pool in the file that selects it
///   namespace.NAME = CHOICE
///   quota.NAMESPACE = MODEL:CARDS[,MODEL:CARDS…]   e.g. A100:4,H200:0.5; MODEL is a part of the model's name, * is all
///   errors  kInvalidArgument: all faulty lines, as "placement.conf:LINE: KEY: …"; a pool without nodes or without a
///           choice; more than 100 pools (each filter call checks them node by node)
[[nodiscard]] Result<PlacementRules> parse_placement_rules(std::string_view text);
/// The quotas of the valid lines of an invalid text: a mistake in another line must not lift them.
[[nodiscard]] Quotas quotas_of_valid_lines(std::string_view text);
/// The text that parse_placement_rules() reads back.
[[nodiscard]] std::string to_text(const PlacementRules& rules);

/// What the pod prefers; empty where it sets nothing. The annotations of other systems (Dialect::rankings) fill in what
/// kPlacementAnnotation does not set.
///   errors  kInvalidArgument: an annotation is illegal: the text has its name, the value and what is legal
[[nodiscard]] Result<PolicyChoice> placement_of(const PodAsk& pod);

}  // namespace carve::codec
