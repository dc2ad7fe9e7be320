#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "port/agent_api.h"

// The cells of the tables that `carve top` prints, for one machine and for a cluster.
namespace carve::cli {

/// "3 GiB"; "?" when the driver does not report the value (Bytes::max()).
[[nodiscard]] std::string memory_cell(Bytes bytes);
/// "3 GiB / 4 GiB".
[[nodiscard]] std::string used_cell(Bytes used, Bytes limit);
/// The compute that a slice holds of a card and its share class: "30 burst", "30 to 60 burst" or "whole".
[[nodiscard]] std::string share_cell(bool whole, CoreShare compute, CoreShare ceiling, ShareClass share);
[[nodiscard]] std::string share_cell(const SliceView& slice, const SliceCardView& card);
/// The first 16 characters of a card's UUID: enough to distinguish the cards of a node.
[[nodiscard]] std::string short_uuid(const std::string& uuid);
/// "one, two, three".
[[nodiscard]] std::string joined(const std::vector<std::string>& words);

}  // namespace carve::cli
