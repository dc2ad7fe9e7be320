#include "codec/dialects/gpushare_unhealthy.h"

#include <cstdint>

#include "codec/quantity.h"
#include "codec/trimmed.h"

namespace carve::codec {
namespace {

constexpr std::uint64_t kHighest = 1023;  // no machine has that many cards
constexpr std::string_view kBlanks = " \t\r\n";

}  // namespace

std::string node_of_unhealthy_gpus(std::string_view config_map_name) {
  return std::string(config_map_name.starts_with(kUnhealthyGpusPrefix)
                         ? config_map_name.substr(kUnhealthyGpusPrefix.size())
                         : std::string_view());
}

Result<std::set<int>> parse_unhealthy_gpus(std::string_view text) {
  std::set<int> indexes;
  text = trimmed(text, kBlanks);
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto read = parse_count(kUnhealthyGpusKey, trimmed(text.substr(0, comma), kBlanks), 0, kHighest,
                                  "(position of a card in the driver's list)");
    if (!read) return tl::unexpected(read.error());
    indexes.insert(static_cast<int>(*read));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return fail(Code::kInvalidArgument, std::string(kUnhealthyGpusKey) + ": ends with a comma");
  }
  return indexes;
}

}  // namespace carve::codec
