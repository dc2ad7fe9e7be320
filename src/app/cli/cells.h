#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "port/agent_api.h"

// What stands in one cell of `carve top`, on one machine and of a cluster.
namespace carve::cli {

/// "3 GiB"; "?" where the driver does not tell.
[[nodiscard]] std::string memory_cell(Bytes bytes);
/// "3 GiB / 4 GiB".
[[nodiscard]] std::string used_cell(Bytes used, Bytes limit);
/// "30 burst", or "whole".
[[nodiscard]] std::string wanted_cell(const SliceView& slice, const SliceCardView& card);
/// As much of a card's UUID as tells it from its neighbours.
[[nodiscard]] std::string short_uuid(const std::string& uuid);
/// "one, two, three".
[[nodiscard]] std::string joined(const std::vector<std::string>& words);

}  // namespace carve::cli
