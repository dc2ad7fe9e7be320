#include "app/cli/cells.h"

#include <fmt/format.h>

#include "app/cli/table.h"

namespace carve::cli {

std::string memory_cell(Bytes bytes) { return bytes == Bytes::max() ? "?" : to_human(bytes); }

std::string used_cell(Bytes used, Bytes limit) { return memory_cell(used) + " / " + memory_cell(limit); }

std::string share_cell(bool whole, CoreShare compute, CoreShare ceiling, ShareClass share) {
  return whole ? "whole" : fmt::format("{} {}", to_human(compute, ceiling), to_string(share));
}

std::string share_cell(const SliceView& slice, const SliceCardView& card) {
  return share_cell(slice.whole, card.compute, slice.ceiling, slice.share);
}

std::string short_uuid(const std::string& uuid) { return clipped(uuid, 16); }

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

}  // namespace carve::cli
