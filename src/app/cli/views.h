#pragma once

#include <string>

#include "port/agent_api.h"

// The agent's view as text for a terminal, without escape codes. The live table of `carve top` prints the same text
// repeatedly.
namespace carve::cli {

/// `carve inspect`: the cards, what is granted and free on each, and every slice with its limits.
[[nodiscard]] std::string render_inspect(const AgentView& view);

/// `carve top`: the use of each card, and below it the slices and processes that use it, with requested and delivered
/// memory and compute.
[[nodiscard]] std::string render_top(const AgentView& view);

/// `carve slice list`.
[[nodiscard]] std::string render_slices(const AgentView& view);

/// One line: "2 × NVIDIA H200 (…), driver 580.1". Without a card the line says why.
[[nodiscard]] std::string describe_cards(const AgentView& view);

/// The granted slice, for `carve slice create`.
[[nodiscard]] std::string render_grant(const Grant& grant);

}  // namespace carve::cli
