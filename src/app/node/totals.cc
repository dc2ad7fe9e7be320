#include "app/node/totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace carve::node {
namespace {

using Cards = std::vector<Card>;

std::uint64_t cards_in(const Cards& cards, Bytes) { return cards.size(); }
std::uint64_t hundredths_in(const Cards& cards, Bytes) { return cards.size() * 100; }

std::uint64_t memory_in(const Cards& cards, Bytes unit) {
  std::uint64_t sum = 0;
  for (const auto& card : cards) sum += card.memory.count() / unit.count();
  return sum;
}
std::uint64_t mebibytes_in(const Cards& cards, Bytes) { return memory_in(cards, Bytes::mib(1)); }

struct Total {
  std::string_view name;
  std::uint64_t (*of)(const Cards& cards, Bytes gpushare_unit);
};
constexpr std::array kTotals = {
    Total{"elasticgpu.io/gpu", cards_in},      Total{"elasticgpu.io/gpu-core", hundredths_in},
    Total{"elasticgpu.io/gpu-memory", mebibytes_in}, Total{"nvidia.com/gpu", cards_in},
    Total{"aliyun.com/gpu-mem", memory_in},    Total{"aliyun.com/gpu-count", cards_in}};

Result<const Total*> find(std::string_view name) {
  const auto* const found =
      std::find_if(kTotals.begin(), kTotals.end(), [&](const Total& total) { return total.name == name; });
  if (found != kTotals.end()) return found;
  return fail(Code::kInvalidArgument, fmt::format("totals: \"{}\" is not a resource of Carve's totals; legal are {}",
                                                  name.substr(0, 64), fmt::join(known_totals(), ", ")));
}

}  // namespace

std::vector<std::string_view> known_totals() {
  std::vector<std::string_view> names;
  for (const auto& total : kTotals) names.push_back(total.name);
  return names;
}

Result<std::string> total_of(std::string_view name, const std::vector<Card>& cards, Bytes gpushare_unit) {
  CARVE_TRY(const auto* total, find(name));
  return fmt::to_string(total->of(cards, gpushare_unit));
}

Result<std::vector<std::string>> total_names(const std::string& words) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < words.size();) {
    const auto comma = std::min(words.find(',', at), words.size());
    const auto name = words.substr(at, comma - at);
    at = comma + 1;
    CARVE_TRY(const auto* total, find(name));
    names.emplace_back(total->name);
  }
  return names;
}

std::set<std::string> totals_set_on(const codec::NodeObject& node) {
  const auto there = node.annotations.find(kTotalsSet);
  if (there == node.annotations.end()) return {};
  const auto names = total_names(there->second);
  if (!names) return {};  // not written by an agent
  return {names->begin(), names->end()};
}

}  // namespace carve::node
