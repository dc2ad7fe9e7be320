// The table of unnamed functions that NVIDIA's own tools request from a driver before they start (nvidia-smi).
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

/// The parameters of most functions in the table are NVIDIA's own. Each returns "not supported", as a driver does for a
/// card without the feature: the tool then shows "N/A" or omits the feature.
Return not_supported() { return kNotSupported; }

struct NamedProcess {
  std::uint32_t pid;
  std::uint64_t bytes;
  std::uint32_t gpu_instance, compute_instance;
  std::uint64_t reserved;
  char name[4096];
};
static_assert(sizeof(NamedProcess) == 4128);

/// The list of processes that nvidia-smi shows: the public list with names. `count` on input: the capacity.
Return named_processes(Device device, unsigned* count, NamedProcess* out) {
  std::vector<ProcessUse> found;
  const Return seen = on_card(device, [&](const Here& h) { return h.session.processes(h.card, &found); });
  if (seen != kSuccess) return seen;
  if (count == nullptr) return kInvalidArgument;
  const unsigned capacity = out == nullptr ? 0 : *count;
  *count = static_cast<unsigned>(found.size());
  if (found.size() > capacity) return kInsufficientSize;
  for (std::size_t i = 0; i < found.size(); ++i) {
    out[i] = {found[i].pid, found[i].bytes, kNoInstance, kNoInstance, 0, {}};
    const Return named = process_name(found[i].pid, out[i].name, sizeof out[i].name);
    if (named != kSuccess) std::strcpy(out[i].name, "[Not Found]");
  }
  return kSuccess;
}

/// Graphics and MPS processes: the simulated card has neither.
Return no_processes(Device device, unsigned* count, NamedProcess*) {
  return on_card(device, [&](const Here&) { return put(count, 0); });
}

/// `dmon` and `pmon` call this first, and exit when it is not supported.
Return takes_samples(Device device, unsigned* out) {
  return on_card(device, [&](const Here&) { return put(out, 1); });
}

/// The connection of two cards, for `topo -m`: 0 through one switch, 1 through several, 2 through a host bridge, 3
/// within a node, 4 across nodes, 4 + n through n NVLinks. The cards are named by their bus ids.
Return path_between(const char* a, const char* b, int* out) {
  return on_library([&](Session& session) -> Return {
    if (a == nullptr || b == nullptr || out == nullptr) return kInvalidArgument;
    const Machine& machine = session.machine();
    const auto index_of = [&](const char* bus) {
      for (std::uint32_t i = 0; i < machine.count; ++i) {
        if (same_bus(bus, machine.cards[i])) return i;
      }
      return machine.count;
    };
    const std::uint32_t first = index_of(a), second = index_of(b);
    if (first >= machine.count || second >= machine.count || first == second) return kInvalidArgument;
    switch (link_between(machine, first, second)) {
      case Link::kNvlink: return put(out, 4 + static_cast<int>(machine.model->nvlink_links));
      case Link::kSameSwitch: return put(out, 0);
      case Link::kSameNode: return put(out, 3);
      case Link::kOtherNode: return put(out, 4);
    }
    return kUnknown;
  });
}

// source  the real libnvidia-ml.so of 535.261, 550.163 and 555.58 without a card: the size in bytes first, then 244,
//         250 and 254 functions; nvidia-smi of the same versions on a table that records which functions it calls
constexpr std::size_t kEntries = 255;
constexpr std::size_t kPath = 23, kSamples = 72;
constexpr std::size_t kComputeList = 213, kGraphicsList = 214, kMpsList = 215;

const void* table() {
  static const auto* made = [] {
    auto* entries = new std::uintptr_t[kEntries];
    entries[0] = kEntries * sizeof entries[0];
    for (std::size_t i = 1; i < kEntries; ++i) entries[i] = reinterpret_cast<std::uintptr_t>(not_supported);
    entries[kSamples] = reinterpret_cast<std::uintptr_t>(takes_samples);
    entries[kPath] = reinterpret_cast<std::uintptr_t>(path_between);
    entries[kComputeList] = reinterpret_cast<std::uintptr_t>(named_processes);
    entries[kGraphicsList] = entries[kMpsList] = reinterpret_cast<std::uintptr_t>(no_processes);
    return entries;
  }();
  return made;
}

constexpr unsigned char kOfTheTools[16] = {0xC4, 0xFE, 0x3E, 0x6C, 0xC9, 0x8F, 0x6C, 0x4E,
                                           0xA3, 0x27, 0xEE, 0x69, 0x6E, 0x12, 0xF7, 0xC4};

}  // namespace

// Works before nvmlInit, and knows no other table (measured on the real library).
CARVE_NVML_EXPORT Return nvmlInternalGetExportTable(const void** out, const void* id) {
  if (out == nullptr || id == nullptr) return kInvalidArgument;
  if (std::memcmp(id, kOfTheTools, sizeof kOfTheTools) != 0) return kInvalidArgument;
  *out = table();
  return kSuccess;
}

}  // namespace carve::sim::nvml
