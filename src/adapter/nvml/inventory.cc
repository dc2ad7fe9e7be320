#include "adapter/nvml/inventory.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "adapter/process/text_file.h"
#include "core/topology/links.h"

namespace carve::nvml {
namespace {

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  std::snprintf(to, N, "%s", from.c_str());
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The kernel's form of a bus ID: the driver writes an 8-digit domain, the kernel a 4-digit one.
std::string kernel_bus_id(const std::string& bus_id) {
  const std::string text = lower(bus_id);
  return text.size() > 12 && text.compare(0, 4, "0000") == 0 ? text.substr(4) : text;
}

int numa_of(const Api& api, Device device, const std::string& bus_id) {
  unsigned node = 0;
  if (api.numa != nullptr && api.numa(device, &node) == kSuccess) return static_cast<int>(node);
  unsigned long set[2] = {};
  if (api.memory_affinity != nullptr && api.memory_affinity(device, 2, set, 0) == kSuccess) {
    for (int bit = 0; bit < 128; ++bit) {
      if ((set[bit / 64] >> (bit % 64) & 1U) != 0) return bit;
    }
  }
  const auto text = process::read_text("/sys/bus/pci/devices/" + kernel_bus_id(bus_id) + "/numa_node");
  return text ? std::atoi(text->c_str()) : -1;
}

/// The PCIe root complex of the card in the kernel's device tree: "0000:17"; empty: unknown.
std::string pcie_root_of(const std::string& bus_id) {
  const std::string place = process::real_path("/sys/bus/pci/devices/" + kernel_bus_id(bus_id));
  constexpr std::string_view kRoots = "/sys/devices/pci";
  if (place.compare(0, kRoots.size(), kRoots) != 0) return {};
  return place.substr(kRoots.size(), place.find('/', kRoots.size()) - kRoots.size());
}

/// The name of the architecture for NVML's number; empty: it is newer than this table.
const char* architecture_name(unsigned number) {
  constexpr std::array<const char*, 11> kNames = {"",      "",       "Kepler", "Maxwell", "Pascal",   "Volta",
                                                  "Turing", "Ampere", "Ada",    "Hopper",  "Blackwell"};
  return number < kNames.size() ? kNames[number] : "";
}

void describe_generation(const Api& api, Device device, WireCard* card) {
  unsigned number = 0;
  if (api.architecture != nullptr && api.architecture(device, &number) == kSuccess)
    copy_text(card->architecture, architecture_name(number));
  int major = 0;
  int minor = 0;
  if (api.compute_capability != nullptr && api.compute_capability(device, &major, &minor) == kSuccess)
    copy_text(card->compute_capability, std::to_string(major) + "." + std::to_string(minor));
}

/// The total memory without the driver's reserved part, which no process can allocate.
std::uint64_t usable_memory(const Api& api, Device device, int* status) {
  MemoryV2 v2 = {};
  v2.version = static_cast<unsigned>(sizeof(MemoryV2)) | 2U << 24U;
  if (api.memory_v2 != nullptr && api.memory_v2(device, &v2) == kSuccess) {
    *status = kSuccess;
    return v2.total - std::min(v2.total, v2.reserved);
  }
  Memory v1 = {};
  *status = api.memory != nullptr ? api.memory(device, &v1) : static_cast<int>(kFunctionNotFound);
  return v1.total;
}

int describe_card(const Api& api, Device device, WireCard* card, std::string* what) {
  *card = {};
  card->minor = -1;
  *what = "UUID";
  if (const int status = api.uuid(device, card->uuid, sizeof(card->uuid)); status != kSuccess) return status;
  if (api.name != nullptr) api.name(device, card->name, sizeof(card->name));
  unsigned minor = 0;
  if (api.minor != nullptr && api.minor(device, &minor) == kSuccess) card->minor = static_cast<int>(minor);
  PciInfo pci = {};
  if (api.pci != nullptr && api.pci(device, &pci) == kSuccess) copy_text(card->bus_id, lower(pci.bus_id));
  int status = kSuccess;
  card->memory_bytes = usable_memory(api, device, &status);
  card->numa_node = numa_of(api, device, card->bus_id);
  copy_text(card->pcie_root, pcie_root_of(card->bus_id));
  describe_generation(api, device, card);
  *what = "memory";
  return status;
}

LinkLevel level_of(int ancestor) {
  switch (ancestor) {
    case 0:
    case 10:
      return LinkLevel::kSwitch;
    case 20:
      return LinkLevel::kMultiSwitch;
    case 30:
      return LinkLevel::kHostBridge;
    case 40:
      return LinkLevel::kNumaNode;
    case 50:
      return LinkLevel::kSystem;
    default:
      return LinkLevel::kUnknown;
  }
}

std::uint8_t active_lanes(const Api& api, Device device) {
  std::uint8_t lanes = 0;
  for (unsigned link = 0; link < 18 && api.nvlink_state != nullptr; ++link) {
    unsigned active = 0;
    if (api.nvlink_state(device, link, &active) == kSuccess && active == 1) ++lanes;
  }
  return lanes;
}

void describe_links(const Api& api, const std::vector<Device>& devices, std::vector<WireCard>* cards) {
  constexpr int kP2pNvlink = 2;  // nvmlGpuP2PCapsIndex: through NVLink
  for (std::size_t a = 0; a < devices.size(); ++a) {
    const std::uint8_t lanes = active_lanes(api, devices[a]);
    for (std::size_t b = 0; b < devices.size(); ++b) {
      if (a == b) continue;
      int ancestor = -1;
      LinkLevel level = LinkLevel::kUnknown;
      if (api.common_ancestor != nullptr &&
          api.common_ancestor(devices[a], devices[b], &ancestor) == kSuccess) {
        level = level_of(ancestor);
      }
      int p2p = -1;
      if (lanes > 0 && api.p2p_status != nullptr &&
          api.p2p_status(devices[a], devices[b], kP2pNvlink, &p2p) == kSuccess && p2p == 0) {
        level = LinkLevel::kNvLink;
        (*cards)[a].link_lanes[b] = lanes;
      }
      (*cards)[a].link_level[b] = static_cast<std::uint8_t>(level);
    }
  }
}

void add_processes(int (*call)(Device, unsigned*, ProcessInfo*), Device device,
                   std::vector<WireProcess>* processes) {
  if (call == nullptr) return;
  std::vector<ProcessInfo> found(64);
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto count = static_cast<unsigned>(found.size());
    const int status = call(device, &count, found.data());
    if (status == kInsufficientSize && found.size() < kMaxProcesses) {
      found.resize(std::min<std::size_t>(kMaxProcesses, std::max<std::size_t>(count, found.size()) * 2));
      continue;
    }
    if (status != kSuccess) return;
    for (unsigned i = 0; i < count && i < found.size() && processes->size() < kMaxProcesses; ++i) {
      const auto pid = static_cast<std::int32_t>(found[i].pid);
      const bool known = std::any_of(processes->begin(), processes->end(),
                                     [pid](const WireProcess& p) { return p.pid == pid; });
      if (!known) processes->push_back({pid, 0, found[i].used});
    }
    return;
  }
}

/// Adds the newest sample of each process since the last call; a process without a new sample has 0. A driver that
/// returns no sample at all has either not sampled yet or seen no work: for one second the last samples stay valid,
/// each limited by the use of the whole card.
///   in  card_percent  the driver's figure for the whole card
void add_samples(const Api& api, Handles* handles, std::size_t card, unsigned card_percent,
                 std::vector<WireProcess>* processes) {
  if (api.process_utilization == nullptr) return;
  std::vector<ProcessSample> samples(kMaxProcesses);
  auto count = static_cast<unsigned>(samples.size());
  const int status =
      api.process_utilization(handles->devices[card], samples.data(), &count, handles->last_sample_us[card]);
  if (status != kSuccess) {
    if (std::chrono::steady_clock::now() - handles->sampled_at[card] > std::chrono::seconds(1))
      handles->last_sm[card].clear();
    for (auto& process : *processes) {
      const auto found = handles->last_sm[card].find(static_cast<unsigned>(process.pid));
      if (found != handles->last_sm[card].end()) process.sm_percent = std::min(found->second, card_percent);
    }
    return;
  }
  std::map<unsigned, ProcessSample> newest;
  for (unsigned i = 0; i < count && i < samples.size(); ++i) {
    auto& slot = newest[samples[i].pid];
    if (samples[i].time_us >= slot.time_us) slot = samples[i];
    handles->last_sample_us[card] =
        std::max<unsigned long long>(handles->last_sample_us[card], samples[i].time_us);
  }
  handles->last_sm[card].clear();
  handles->sampled_at[card] = std::chrono::steady_clock::now();
  for (const auto& [pid, sample] : newest) handles->last_sm[card][pid] = std::min(100U, sample.sm);
  for (auto& process : *processes) {
    const auto found = handles->last_sm[card].find(static_cast<unsigned>(process.pid));
    if (found != handles->last_sm[card].end()) process.sm_percent = found->second;
  }
}

}  // namespace

namespace {

constexpr int kClockSm = 1;      // nvmlClockType_t
constexpr int kClockMemory = 2;

/// The action that the driver recommends for the card, the best single indicator of its health, if the driver has it.
std::uint32_t recovery_of(const Api& api, Device device) {
  FieldValue field = {};
  field.field = kFieldRecoveryAction;
  if (api.field_values == nullptr || api.field_values(device, 1, &field) != kSuccess || field.status != kSuccess)
    return kNoRecovery;
  return static_cast<std::uint32_t>(field.value);
}

}  // namespace

int take_inventory(const Library& library, Handles* handles, WireMachine* machine,
                   std::vector<WireCard>* cards, std::string* what) {
  const Api& api = library.api;
  *machine = {};
  if (api.driver_version != nullptr)
    api.driver_version(machine->driver_version, sizeof(machine->driver_version));
  int cuda = 0;
  if (api.cuda_version != nullptr && api.cuda_version(&cuda) == kSuccess) {
    copy_text(machine->cuda_version, std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10));
  }
  copy_text(machine->cuda_file, library.cuda_file);
  copy_text(machine->nvml_file, library.nvml_file);
  unsigned count = 0;
  *what = "device count";
  if (const int status = api.count(&count); status != kSuccess) return status;
  handles->devices.clear();
  cards->clear();
  for (unsigned i = 0; i < count && cards->size() < kMaxCards; ++i) {
    Device device = nullptr;
    WireCard card;
    if (api.by_index(i, &device) != kSuccess) continue;
    if (describe_card(api, device, &card, what) != kSuccess) continue;
    handles->devices.push_back(device);
    cards->push_back(card);
  }
  describe_links(api, handles->devices, cards);
  ++handles->generation;
  handles->last_sample_us.assign(handles->devices.size(), 0);
  handles->last_sm.assign(handles->devices.size(), {});
  handles->sampled_at.assign(handles->devices.size(), {});
  handles->activity.reset(api, handles->devices.size());
  machine->cards = static_cast<std::uint32_t>(cards->size());
  return kSuccess;
}

int take_usage(const Library& library, Handles* handles, std::size_t card, WireUsage* usage,
               std::vector<WireProcess>* processes, std::string* what) {
  const Api& api = library.api;
  const Device device = handles->devices[card];
  *usage = {};
  usage->recovery = kNoRecovery;
  usage->memory_busy_percent = kNoPercent;
  usage->energy_mj = kNoEnergy;
  processes->clear();
  MemoryV2 v2 = {};
  v2.version = static_cast<unsigned>(sizeof(MemoryV2)) | 2U << 24U;
  Memory v1 = {};
  int status = kFunctionNotFound;
  *what = "memory";
  if (api.memory_v2 != nullptr && (status = api.memory_v2(device, &v2)) == kSuccess) {
    usage->used_bytes = v2.total - v2.reserved - v2.free;  // the headers disagree about the content of "used"
  } else if (api.memory != nullptr && (status = api.memory(device, &v1)) == kSuccess) {
    usage->used_bytes = v1.used;
  }
  if (status == kGpuIsLost || status == kResetRequired) {
    usage->lost = 1;
    return kSuccess;
  }
  if (status != kSuccess) return status;
  usage->recovery = recovery_of(api, device);
  Utilization rates = {};
  if (api.utilization != nullptr && api.utilization(device, &rates) == kSuccess) {
    usage->utilization_percent = std::min(100U, rates.gpu);
    usage->memory_busy_percent = std::min(100U, rates.memory);
  }
  if (api.temperature != nullptr) api.temperature(device, 0, &usage->temperature_c);
  if (api.power != nullptr) api.power(device, &usage->power_mw);
  if (api.clock != nullptr) {
    api.clock(device, kClockSm, &usage->sm_clock_mhz);
    api.clock(device, kClockMemory, &usage->memory_clock_mhz);
  }
  unsigned long long energy_mj = 0;
  if (api.energy != nullptr && api.energy(device, &energy_mj) == kSuccess) usage->energy_mj = energy_mj;
  const CardActivity activity = handles->activity.read(api, card, device);
  for (std::size_t at = 0; at < std::size(kActivityParts); ++at)
    usage->activity[at] = (activity.*kActivityParts[at]).value_or(std::nan(""));
  add_processes(api.compute_processes, device, processes);
  add_processes(api.graphics_processes, device, processes);
  add_samples(api, handles, card, usage->utilization_percent, processes);
  usage->processes = static_cast<std::uint32_t>(processes->size());
  return kSuccess;
}

}  // namespace carve::nvml
