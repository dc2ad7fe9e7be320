#include "app/node/totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "app/plugins/slot_list.h"

namespace carve::node {
namespace {

// every dialect is served
constexpr codec::DialectSettings kAll{.nvidia_by_slots = true, .hami = true, .deepomatic_containers = 1};

std::uint64_t memory_in(const std::vector<Card>& cards, Bytes unit) {
  std::uint64_t sum = 0;
  for (const auto& card : cards) sum += card.memory.count() / unit.count();
  return sum;
}

Result<codec::ResourceName> find(std::string_view name) {
  for (const auto& one : codec::names_on_nodes(kAll)) {
    if (one.name == name) return one;
  }
  return fail(Code::kInvalidArgument, fmt::format("totals: \"{}\" is not a resource of Carve's totals; legal are {}",
                                                  name.substr(0, 64), fmt::join(known_totals(), ", ")));
}

}  // namespace

std::vector<std::string_view> known_totals() {
  std::vector<std::string_view> names;
  for (const auto& one : codec::names_on_nodes(kAll)) names.push_back(one.name);
  return names;
}

Result<std::string> total_of(std::string_view name, const std::vector<Card>& all,
                             const codec::DialectSettings& settings, bool shared_by_rancher) {
  CARVE_TRY(const auto resource, find(name));
  const bool of_nvidia = resource.total == codec::Total::kCardsOfNvidia;
  const bool parts = of_nvidia && shared_by_rancher && settings.rancher_containers > 0;
  const bool whole_deepomatic =
      resource.total == codec::Total::kCardsOfDeepomatic && settings.deepomatic_containers == 1;
  const bool any = resource.requested == codec::Requested::kAny || whole_deepomatic ||
                   (of_nvidia && (settings.hami || parts));
  std::vector<Card> cards;
  for (const Card& card : all) {
    if (any || permits(card.mode, resource.requested == codec::Requested::kWholeCards)) cards.push_back(card);
  }
  switch (resource.total) {
    case codec::Total::kNone:
    case codec::Total::kCards:
      break;
    case codec::Total::kSlots:
      return fmt::to_string(plugins::slots_of(cards.size()));
    case codec::Total::kCardsOfNvidia:
      if (settings.hami) return fmt::to_string(plugins::slots_of(cards.size()));
      if (parts) return fmt::to_string(cards.size() * settings.rancher_containers);
      break;
    case codec::Total::kHundredths:
      return fmt::to_string(cards.size() * 100);
    case codec::Total::kCardsOfDeepomatic:
      return fmt::to_string(cards.size() * settings.deepomatic_containers);
    case codec::Total::kMemory:
      return fmt::to_string(memory_in(cards, resource.unit(settings)));
  }
  return fmt::to_string(cards.size());
}

Result<std::vector<std::string>> total_names(const std::string& words) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at < words.size();) {
    const auto comma = std::min(words.find(',', at), words.size());
    const auto name = words.substr(at, comma - at);
    at = comma + 1;
    CARVE_TRY(const auto resource, find(name));
    names.emplace_back(resource.name);
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
