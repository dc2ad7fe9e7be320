#pragma once

#include <string>

#include "port/agent_api.h"

// What a person sees of the agent's view. Pure text, no escape codes; the live table is the same text again.
namespace carve::cli {

/// `carve inspect`: cards, what is set aside and free on each, and every slice with its limits.
[[nodiscard]] std::string render_inspect(const AgentView& view);

/// `carve top`: per card its use, below it who uses it: slice, process, wanted and delivered memory and
/// compute.
[[nodiscard]] std::string render_top(const AgentView& view);

/// `carve slice list`.
[[nodiscard]] std::string render_slices(const AgentView& view);

/// One line: "2 × NVIDIA H200 (…), driver 580.1"; says what is missing where there is no card.
[[nodiscard]] std::string describe_cards(const AgentView& view);

/// What was granted, for `carve slice create`.
[[nodiscard]] std::string render_grant(const Grant& grant);

}  // namespace carve::cli
