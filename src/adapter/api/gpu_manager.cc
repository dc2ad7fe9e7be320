#include "adapter/api/gpu_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "port/slice_names.h"

namespace carve::api {
namespace {

namespace json = boost::json;

void put(json::object* object, const char* name, double value) {
  if (value != 0) (*object)[name] = value;
}

/// The end of the cards: the card is gone.
std::vector<CardView>::const_iterator card_of(const AgentView& view, const SliceCardView& held) {
  return std::find_if(view.cards.begin(), view.cards.end(),
                      [&](const CardView& one) { return one.card.id.str() == held.card; });
}

/// The slice's use of one of its cards; null: the card is gone.
json::value device_of(const AgentView& view, const SliceCardView& held) {
  const auto card = card_of(view, held);
  if (card == view.cards.end()) return nullptr;
  json::object device{{"id", card->pci_bus_id}, {"card_idx", std::to_string(card - view.cards.begin())}};
  put(&device, "gpu", held.delivered_percent);
  if (const auto used = if_reported(held.used)) put(&device, "mem", used->in_mib());
  return device;
}

void add(json::object* pod, const AgentView& view, const SliceView& slice) {
  json::array devices;
  double cores = 0;
  double memory = 0;
  for (const auto& held : slice.cards) {
    if (auto device = device_of(view, held); !device.is_null()) devices.push_back(std::move(device));
    cores += held.compute.hundredths();
    memory += held.limit.in_mib();
  }
  json::object spec;
  put(&spec, "gpu", cores / 100);
  put(&spec, "mem", memory);
  const auto container = names_of(slice).container;
  (*pod)["stat"].as_object()[container] = json::object{{"dev", std::move(devices)}};
  (*pod)["spec"].as_object()[container] = std::move(spec);
}

/// What joins the cards of a branch, in gpu-manager's order.
enum class Level : std::uint8_t { kCard, kRootComplex, kNumaNode, kMachine };
constexpr std::array<const char*, 4> kLevels = {"GPU", "PHB", "CPU", "SYS"};

/// A card, or a group of at least two branches.
struct Branch {
  Level level = Level::kCard;
  std::size_t first = 0;  // index of its first card
  Bytes used, total;
  CoreShare cores;    // that a new slice may take, as the next one; 0 for a group, as in gpu-manager
  Bytes memory;
  int available = 0;  // cards without slices
  std::vector<Branch> below;
};

Branch leaf(const CardView& card, std::size_t index) {
  Branch one;
  one.first = index;
  one.used = if_reported(card.used).value_or(Bytes());
  one.total = card.card.memory;
  if (!card.exclusive) {
    one.cores = card.card.compute - card.guaranteed;
    one.memory = card.card.memory - card.set_aside;
  }
  one.available = !card.exclusive && card.set_aside == Bytes() && card.guaranteed == CoreShare() ? 1 : 0;
  return one;
}

/// Joins the branches whose first cards have the same key. An empty key joins nothing.
std::vector<Branch> join(std::vector<Branch> branches, Level level,
                         const std::function<std::string(std::size_t card)>& key_of) {
  std::vector<Branch> joined;
  std::map<std::string, std::size_t> places;
  for (auto& branch : branches) {
    const auto key = key_of(branch.first);
    const auto known = places.find(key);
    if (key.empty() || known == places.end()) {
      places[key] = joined.size();
      joined.push_back(std::move(branch));
      continue;
    }
    Branch& group = joined[known->second];
    if (group.level != level) {
      Branch first = std::move(group);
      group = {level, first.first, first.used, first.total, {}, {}, first.available, {}};
      group.below.push_back(std::move(first));
    }
    group.used += branch.used;
    group.total += branch.total;
    group.available += branch.available;
    group.below.push_back(std::move(branch));
  }
  return joined;
}

/// Below a group, cards come before groups, and branches with fewer free cards first, as gpu-manager prints them.
void write(std::string* text, const Branch& branch, int depth) {
  for (int i = 0; i < depth; ++i) *text += "|   ";
  *text += fmt::format("|---{}", kLevels[static_cast<std::size_t>(branch.level)]);
  const bool card = branch.level == Level::kCard;
  *text += card ? fmt::format("{} (", branch.first) : fmt::format(" (aval: {}, ", branch.available);
  *text += fmt::format("pids: [], usedMemory: {}, totalMemory: {}, allocatableCores: {}, allocatableMemory: {})\n",
                       branch.used.count(), branch.total.count(), branch.cores.hundredths(), branch.memory.count());
  std::vector<const Branch*> order;
  for (const auto& one : branch.below) order.push_back(&one);
  std::stable_sort(order.begin(), order.end(), [](const Branch* a, const Branch* b) {
    return std::tuple(a->level, a->available) < std::tuple(b->level, b->available);
  });
  for (const auto* one : order) write(text, *one, depth + 1);
}

/// resource_data_t. The driver's version is written as it is read: the part before and after the first dot.
struct VcudaConfig {
  char pod_uid[48];
  std::int32_t limit;
  char unused[4044];
  char container_name[4096];
  char bus_id[16];
  std::uint64_t memory;
  std::int32_t utilization;
  std::int32_t hard_limit;
  std::int32_t driver_major;
  std::int32_t driver_minor;
  std::int32_t enable;
  char padding[4];
};
static_assert(sizeof(VcudaConfig) == 8240 && offsetof(VcudaConfig, container_name) == 4096 &&
              offsetof(VcudaConfig, memory) == 8208 && offsetof(VcudaConfig, enable) == 8232);

/// Copies at most what leaves room for the ending 0.
template <std::size_t kSize>
void put_text(char (&field)[kSize], std::string_view text) {
  text.copy(field, kSize - 1);
}

std::int32_t number_at(std::string_view text) {
  std::int32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string gpu_manager_version(const AgentView& view) {
  return json::serialize(json::object{{"version", view.version}});
}

std::optional<std::string> gpu_manager_config(const AgentView& view, std::string_view pod_uid,
                                              std::string_view container) {
  const auto slice = std::find_if(view.slices.begin(), view.slices.end(), [&](const SliceView& one) {
    return one.kind == "pod" && one.owner == pod_uid && names_of(one).container == container && !one.cards.empty();
  });
  if (slice == view.slices.end()) return std::nullopt;
  const SliceCardView& held = slice->cards.front();
  const auto card = card_of(view, held);
  VcudaConfig config = {};
  put_text(config.pod_uid, pod_uid);
  put_text(config.container_name, container);
  if (card != view.cards.end()) put_text(config.bus_id, card->pci_bus_id);
  config.memory = held.limit.count();
  config.utilization = static_cast<std::int32_t>(held.compute.hundredths());
  // With a limit above the guarantee gpu-manager's limit is soft.
  config.hard_limit = slice->ceiling == CoreShare::whole() ? 1 : 0;
  config.limit = config.hard_limit != 0 ? 0 : static_cast<std::int32_t>(slice->ceiling.hundredths());
  config.driver_major = number_at(view.driver_version);
  const auto dot = view.driver_version.find('.');
  if (dot != std::string::npos) config.driver_minor = number_at(std::string_view(view.driver_version).substr(dot + 1));
  config.enable = held.compute < CoreShare::whole() ? 1 : 0;
  std::string bytes(sizeof(config), '\0');
  std::memcpy(bytes.data(), &config, sizeof(config));
  return bytes;
}

std::string gpu_manager_graph(const AgentView& view) {
  std::vector<Branch> tops;
  for (std::size_t index = 0; index < view.cards.size(); ++index) tops.push_back(leaf(view.cards[index], index));
  tops = join(std::move(tops), Level::kRootComplex, [&](std::size_t card) { return view.cards[card].card.pcie_root; });
  tops = join(std::move(tops), Level::kNumaNode, [&](std::size_t card) {
    const int numa = view.cards[card].card.numa_node;
    return numa < 0 ? std::string() : std::to_string(numa);
  });
  tops = join(std::move(tops), Level::kMachine, [](std::size_t) { return "machine"; });
  int available = 0;
  for (const auto& top : tops) available += top.available;
  auto text = fmt::format("ROOT:{}\n", available);
  for (const auto& top : tops) write(&text, top, 0);
  return json::serialize(json::object{{"graph", std::move(text)}});
}

std::string gpu_manager_usage(const AgentView& view) {
  json::object pods;
  for (const auto& slice : view.slices) {
    if (slice.kind != "pod" || slice.owner.empty()) continue;
    auto [pod, is_new] = pods.emplace(slice.owner, json::object());
    auto& object = pod->value().as_object();
    if (is_new) {
      object = {{"stat", json::object()}, {"project", names_of(slice).namespace_name},
                {"spec", json::object()}};
    }
    add(&object, view, slice);
  }
  json::object answer;
  if (!pods.empty()) answer["usage"] = std::move(pods);
  return json::serialize(answer);
}

}  // namespace carve::api
