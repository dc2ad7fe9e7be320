#include "app/plugins/publish.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "app/plugins/device_names.h"
#include "core/model/slice.h"

namespace carve::plugins {
namespace {

constexpr std::size_t kDevicesPerSlice = 64;
constexpr std::size_t kAttributeMax = 64;
constexpr std::size_t kTaintValueMax = 63;

/// The text as a label value: lower-case letters and digits, with single dashes between them.
std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
    if (out.size() == kTaintValueMax) break;
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "unhealthy" : out;
}

/// Shortens the PCI domain from NVML's eight digits to the usual four.
std::string pci_bus_id(std::string_view id) {
  const auto colon = id.find(':');
  if (colon == std::string_view::npos) return {};
  if (colon > 4 && id.substr(0, colon - 4).find_first_not_of('0') == std::string_view::npos)
    id.remove_prefix(colon - 4);
  std::string out(id);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

void add(codec::PublishedDevice* device, const char* name, std::string_view text) {
  if (!text.empty()) device->attributes[name] = std::string(text.substr(0, kAttributeMax));
}

void add_version(codec::PublishedDevice* device, const char* name, std::string_view text) {
  if (auto version = semantic_version(text)) device->attributes[name] = codec::AttributeVersion{*version};
}

/// Memory and cores. The scheduler raises a smaller request to `min` (KEP-5075), and refuses one above `max`.
void add_amounts(codec::PublishedDevice* device, const Card& card, CardMode mode) {
  const auto total = published_memory(card);
  const std::string memory = to_canonical(total);
  auto& offered = device->capacity[std::string(kMemory)];
  auto& cores = device->capacity[std::string(kCores)];
  offered = {memory, memory, "1Mi", "1Mi", ""};
  cores = {"100", "100", "1", "1", ""};
  if (mode == CardMode::kExclusive) {
    offered.min = memory;
    cores.min = "100";
    offered.step = cores.step = "";
  } else if (mode == CardMode::kShared && total > Bytes::mib(1)) {
    offered.max = offered.standard = to_canonical(total - Bytes::mib(1));
  }
  if (mode != CardMode::kAny) add(device, "cardMode", to_string(mode));
}

codec::PublishedDevice device_of(const GpuInventory& cards, std::size_t index, CardMode mode) {
  const Card& card = cards.cards[index];
  codec::PublishedDevice device;
  device.name = device_name(card.id);
  add(&device, "uuid", card.id.str());
  add(&device, "productName", card.model);
  add(&device, "vendor", card.vendor);
  add(&device, "architecture", card.architecture);
  add_version(&device, "cudaComputeCapability", card.compute_capability);
  add_version(&device, "driverVersion", cards.driver_version);
  add_version(&device, "cudaDriverVersion", cards.cuda_version);
  if (index < cards.pci_bus_ids.size())
    add(&device, "resource.kubernetes.io/pciBusID", pci_bus_id(cards.pci_bus_ids[index]));
  if (!card.pcie_root.empty()) add(&device, "resource.kubernetes.io/pcieRoot", "pci" + card.pcie_root);
  if (card.numa_node >= 0) {
    device.attributes["numaNode"] = std::int64_t{card.numa_node};
    device.attributes["resource.kubernetes.io/numaNode"] = std::int64_t{card.numa_node};
  }
  add_amounts(&device, card, mode);
  // The same number that prepare() enforces. What is kept for root (slices-for-root) is kept from users of `carve run`.
  device.capacity[std::string(kSliceCount)] = {std::to_string(kMaxSlicesPerCard), "1", "1", "", "1"};
  if (!card.health.ok)
    device.taints.push_back({std::string(kUnhealthyTaint), slug(card.health.reason), "NoSchedule", ""});
  return device;
}

codec::DeviceTaint slots_taint() { return {std::string(kSlotsTaint), "pods", "NoSchedule", ""}; }

bool same_but_taints(codec::PublishedSlice a, codec::PublishedSlice b) {
  for (auto* slice : {&a, &b}) {
    for (auto& device : slice->devices) device.taints.clear();
  }
  return a.driver == b.driver && a.node == b.node && a.pool == b.pool && a.count == b.count &&
         a.devices == b.devices;
}

/// Keeps the added-times of the taints that stay.
void keep_times(codec::PublishedSlice* wanted, const codec::PublishedSlice& existing) {
  for (auto& device : wanted->devices) {
    for (const auto& old : existing.devices) {
      if (old.name != device.name) continue;
      for (auto& taint : device.taints) {
        for (const auto& before : old.taints) {
          if (taint == before) taint.added = before.added;
        }
      }
    }
  }
}

}  // namespace

std::string slices_of_node(const std::string& node) {
  return fmt::format("spec.driver={},spec.nodeName={}", kDriver, node);
}

std::string device_name(const CardId& card) {
  std::string_view uuid = card.str();
  if (uuid.starts_with("GPU-")) uuid.remove_prefix(4);
  return "gpu-" + slug(uuid).substr(0, kTaintValueMax - 4);
}

Bytes published_memory(const Card& card) { return Bytes(card.memory.count() >> 20U << 20U); }

Result<void> check_health(const RecordPart& part, const GpuInventory& cards) {
  for (const auto& held : part.cards) {
    for (const auto& card : cards.cards) {
      if (card.id == held.card && !card.health.ok)
        return fail(Code::kUnavailable, fmt::format("card {} is unhealthy: {}", card.id.str(), card.health.reason));
    }
  }
  return {};
}

const Card* card_named(const GpuInventory& cards, std::string_view device) {
  for (const auto& card : cards.cards) {
    if (device_name(card.id) == device) return &card;
  }
  return nullptr;
}

std::optional<std::string> semantic_version(std::string_view text) {
  std::string out;
  int parts = 0;
  while (parts < 3) {
    const auto dot = text.find('.');
    std::string_view part = text.substr(0, dot);
    if (part.empty() || part.size() > 9 || part.find_first_not_of("0123456789") != std::string_view::npos)
      return std::nullopt;
    part.remove_prefix(std::min(part.find_first_not_of('0'), part.size() - 1));
    out += (parts == 0 ? "" : ".") + std::string(part);
    ++parts;
    if (dot == std::string_view::npos) break;
    text.remove_prefix(dot + 1);
    if (parts == 3) return std::nullopt;
  }
  for (; parts < 3; ++parts) out += ".0";
  return out;
}

std::vector<codec::PublishedDevice> devices_of(const GpuInventory& cards, const OfferLimits& limits) {
  std::vector<codec::PublishedDevice> devices;
  devices.reserve(cards.cards.size());
  for (std::size_t i = 0; i < cards.cards.size(); ++i) {
    const CardId& card = cards.cards[i].id;
    const auto mode = limits.modes.find(card);
    devices.push_back(device_of(cards, i, mode == limits.modes.end() ? CardMode::kAny : mode->second));
    if (limits.cards.contains(card)) devices.back().taints.push_back(slots_taint());
    if (limits.full.contains(card))
      devices.back().taints.push_back({std::string(kFullTaint), "claims", "NoSchedule", ""});
  }
  return devices;
}

void keep_slots_taints(std::vector<codec::PublishedSlice>* wanted, const std::vector<codec::PublishedSlice>& existing) {
  const auto has = [](const codec::PublishedDevice& device) {
    return std::find(device.taints.begin(), device.taints.end(), slots_taint()) != device.taints.end();
  };
  std::set<std::string> tainted;
  for (const auto& slice : existing) {
    for (const auto& device : slice.devices) {
      if (has(device)) tainted.insert(device.name);
    }
  }
  for (auto& slice : *wanted) {
    for (auto& device : slice.devices) {
      if (tainted.contains(device.name) && !has(device)) device.taints.push_back(slots_taint());
    }
  }
}

std::vector<codec::PublishedSlice> slices_for(const std::string& node,
                                              const std::vector<codec::PublishedDevice>& devices) {
  std::vector<codec::PublishedSlice> slices;
  for (std::size_t at = 0; at < devices.size(); at += kDevicesPerSlice) {
    codec::PublishedSlice slice;
    slice.name = fmt::format("{}-{}-{}", node.substr(0, 220), kDriver, slices.size());
    slice.driver = std::string(kDriver);
    slice.node = slice.pool = node;
    const auto end = std::min(at + kDevicesPerSlice, devices.size());
    slice.devices.assign(devices.begin() + static_cast<std::ptrdiff_t>(at),
                         devices.begin() + static_cast<std::ptrdiff_t>(end));
    slices.push_back(std::move(slice));
  }
  for (auto& slice : slices) slice.count = static_cast<std::int64_t>(slices.size());
  return slices;
}

std::vector<SliceWrite> plan(const std::vector<codec::PublishedSlice>& wanted,
                             const std::vector<codec::PublishedSlice>& existing,
                             std::int64_t last_generation) {
  std::map<std::string, const codec::PublishedSlice*> by_name;
  std::int64_t generation = last_generation;
  for (const auto& slice : existing) {
    by_name[slice.name] = &slice;
    generation = std::max(generation, slice.generation);
  }
  bool raise = wanted.size() != existing.size();
  for (const auto& slice : wanted) {
    const auto found = by_name.find(slice.name);
    raise = raise || found == by_name.end() || found->second->generation != generation ||
            !same_but_taints(slice, *found->second);
  }
  if (raise) ++generation;
  std::vector<SliceWrite> creates;
  std::vector<SliceWrite> replaces;
  for (auto slice : wanted) {
    slice.generation = generation;
    const auto found = by_name.find(slice.name);
    if (found == by_name.end()) {
      creates.push_back({SliceWrite::Kind::kCreate, std::move(slice)});
      continue;
    }
    const bool same = !raise && slice.devices == found->second->devices;
    slice.version = found->second->version;
    keep_times(&slice, *found->second);
    by_name.erase(found);
    if (!same) replaces.push_back({SliceWrite::Kind::kReplace, std::move(slice)});
  }
  creates.insert(creates.end(), replaces.begin(), replaces.end());
  for (const auto& [name, slice] : by_name) creates.push_back({SliceWrite::Kind::kRemove, *slice});
  return creates;
}

}  // namespace carve::plugins
