// How cards are connected to each other and to the processors.
#include <dirent.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "sim/nvml/call.h"

namespace carve::sim::nvml {
namespace {

// Levels of nvmlGpuTopologyLevel_t.
constexpr unsigned kInternal = 0, kSingleSwitch = 10, kNode = 40, kSystem = 50;
constexpr unsigned kP2pOk = 0, kP2pNotSupported = 5, kCapsNvlink = 2, kCapsLast = 4;
constexpr unsigned kLinkLimit = 36;  // NVML's own limit on link numbers
constexpr unsigned kRemoteIsSwitch = 2;

// The PCIe level that two cards share, without regard to NVLink. Each PCIe switch has two cards.
unsigned pcie_level(const Machine& machine, std::uint32_t a, std::uint32_t b) {
  if (a == b) return kInternal;
  if (machine.cards[a].numa_node != machine.cards[b].numa_node) return kSystem;
  return a / 2 == b / 2 ? kSingleSwitch : kNode;
}

/// Runs `f(Here of a, Card of b)` for two valid handles.
template <class F>
Return on_pair(Device a, Device b, F f) {
  return on_card(a, [&](const Here& h) -> Return {
    h.lib.mutex.assert_held();
    for (unsigned i = 0; i < h.lib.visible; ++i) {
      if (b == &h.lib.handles[i]) return f(h, h.lib.handles[i]);
    }
    return kInvalidArgument;
  });
}

template <class F>
Return on_link(Device device, unsigned link, F f) {
  return on_card(device, [&](const Here& h) -> Return {
    if (link >= kLinkLimit) return kInvalidArgument;
    if (h.model.nvlink_links == 0 || link >= h.model.nvlink_links) return kNotSupported;
    return f(h);
  });
}

void set_bit(unsigned long* set, unsigned words, unsigned bit) {
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  if (bit / kBits < words) set[bit / kBits] |= 1UL << bit % kBits;
}

/// Adds the ranges of a list such as "0-3,8" to the set.
void add_list(const char* text, unsigned long* set, unsigned words) {
  while (*text != '\0') {
    char* end = nullptr;
    const unsigned long from = std::strtoul(text, &end, 10);
    if (end == text) return;
    unsigned long to = from;
    if (*end == '-') to = std::strtoul(end + 1, &end, 10);
    for (unsigned long i = from; i <= to && i < 8UL * sizeof(long) * words; ++i) {
      set_bit(set, words, static_cast<unsigned>(i));
    }
    text = *end == ',' ? end + 1 : end;
    if (*end != ',') return;
  }
}

/// The processors of a NUMA node of the real host; all of them when the host has no such node. The simulated machine
/// may have more nodes than its host, and a program could not pin itself to an empty set.
void add_cpus(unsigned node, unsigned long* set, unsigned words) {
  char path[64];
  std::snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) file = std::fopen("/sys/devices/system/cpu/online", "re");
  if (file == nullptr) return set_bit(set, words, 0);
  char text[512] = {};
  if (std::fgets(text, sizeof text, file) != nullptr) add_list(text, set, words);
  std::fclose(file);
}

Return cpu_affinity(Device device, unsigned words, unsigned long* set) {
  return on_card(device, [&](const Here& h) -> Return {
    if (set == nullptr || words == 0) return kInvalidArgument;
    std::fill(set, set + words, 0UL);
    add_cpus(h.facts.numa_node, set, words);
    return kSuccess;
  });
}

}  // namespace

CARVE_NVML_EXPORT Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, unsigned* out) {
  return on_pair(a, b, [&](const Here& h, const Card& other) {
    return put(out, pcie_level(h.session.machine(), h.card.minor, other.minor));
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetTopologyNearestGpus(Device device, unsigned level,
                                                          unsigned* count, Device* out) {
  return on_card(device, [&](const Here& h) -> Return {
    h.lib.mutex.assert_held();
    if (count == nullptr || level > kSystem || level % 10 != 0) return kInvalidArgument;
    const unsigned capacity = out == nullptr ? 0 : *count;
    unsigned found = 0;
    for (unsigned i = 0; i < h.lib.visible; ++i) {
      if (&h.lib.handles[i] == device) continue;
      if (pcie_level(h.session.machine(), h.card.minor, h.lib.handles[i].minor) > level) continue;
      if (found < capacity) out[found] = &h.lib.handles[i];
      ++found;
    }
    *count = found;
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned* count, Device* out) {
  Library& lib = library();
  return on_library([&](Session& session) -> Return {
    lib.mutex.assert_held();
    if (count == nullptr) return kInvalidArgument;
    const unsigned capacity = out == nullptr ? 0 : *count;
    unsigned found = 0;
    for (unsigned i = 0; i < lib.visible; ++i) {
      unsigned long set[16] = {};
      add_cpus(session.machine().cards[lib.handles[i].minor].numa_node, set, std::size(set));
      constexpr unsigned kBits = 8 * sizeof(unsigned long);
      if (cpu / kBits >= std::size(set) || (set[cpu / kBits] >> cpu % kBits & 1UL) == 0) continue;
      if (found < capacity) out[found] = &lib.handles[i];
      ++found;
    }
    *count = found;
    return kSuccess;
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetP2PStatus(Device a, Device b, unsigned caps, unsigned* out) {
  return on_pair(a, b, [&](const Here& h, const Card& other) -> Return {
    if (caps > kCapsLast) return kInvalidArgument;
    const bool nvlink = h.card.minor != other.minor &&
                        link_between(h.session.machine(), h.card.minor, other.minor) ==
                            Link::kNvlink;
    // Atomics and the link itself need NVLink; reads and writes also go over PCIe.
    const bool ok = nvlink || (caps != kCapsNvlink && caps != 3);
    return put(out, ok ? kP2pOk : kP2pNotSupported);
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceOnSameBoard(Device a, Device b, int* out) {
  return on_pair(a, b, [&](const Here& h, const Card& other) {
    return put(out, h.card.minor == other.minor ? 1 : 0);
  });
}

CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* out) {
  return on_link(device, link, [&](const Here&) { return put(out, 1); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkVersion(Device device, unsigned link, unsigned* out) {
  return on_link(device, link, [&](const Here& h) { return put(out, h.model.nvlink_version); });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkCapability(Device device, unsigned link,
                                                       unsigned capability, unsigned* out) {
  constexpr unsigned kLast = 5, kSliBridge = 4;
  return on_link(device, link, [&](const Here&) -> Return {
    if (capability > kLast) return kInvalidArgument;
    return put(out, capability == kSliBridge ? 0 : 1);
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned link,
                                                         unsigned counter,
                                                         unsigned long long* out) {
  constexpr unsigned kLast = 4;
  return on_link(device, link, [&](const Here&) -> Return {
    return counter > kLast ? kInvalidArgument : put(out, 0);
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link,
                                                             unsigned* out) {
  return on_link(device, link, [&](const Here&) { return put(out, kRemoteIsSwitch); });
}

// All links end in switches: link k of every card in switch k mod 4, as on an HGX board.
CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link,
                                                             PciInfo* out) {
  constexpr unsigned kSwitches = 4, kFirstBus = 0xC5, kSwitchId = 0x22A310DE;
  return on_link(device, link, [&](const Here&) -> Return {
    if (out == nullptr) return kInvalidArgument;
    PciInfo info = {{}, 0, kFirstBus + link % kSwitches, 0, kSwitchId, 0, {}};
    std::snprintf(info.bus_id_legacy, sizeof info.bus_id_legacy, "0000:%02X:00.0", info.bus & 0xFF);
    std::snprintf(info.bus_id, sizeof info.bus_id, "00000000:%02X:00.0", info.bus & 0xFF);
    *out = info;
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetNvLinkRemotePciInfo(Device device, unsigned link,
                                                          PciInfo* out) {
  return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, out);
}

CARVE_NVML_EXPORT Return nvmlDeviceGetCpuAffinity(Device device, unsigned words,
                                                  unsigned long* set) {
  return cpu_affinity(device, words, set);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetCpuAffinityWithinScope(Device device, unsigned words,
                                                             unsigned long* set, unsigned scope) {
  return scope > 1 ? kInvalidArgument : cpu_affinity(device, words, set);
}
CARVE_NVML_EXPORT Return nvmlDeviceGetMemoryAffinity(Device device, unsigned words,
                                                     unsigned long* set, unsigned scope) {
  return on_card(device, [&](const Here& h) -> Return {
    if (set == nullptr || words == 0 || scope > 1) return kInvalidArgument;
    std::fill(set, set + words, 0UL);
    set_bit(set, words, h.facts.numa_node);
    return kSuccess;
  });
}

// One machine; NVLink does not connect machines.
CARVE_NVML_EXPORT Return nvmlDeviceGetGpuFabricInfo(Device device, FabricInfo* out) {
  return on_card(device, [&](const Here&) -> Return {
    if (out == nullptr) return kInvalidArgument;
    *out = {};
    return kSuccess;
  });
}
CARVE_NVML_EXPORT Return nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfoV* out) {
  constexpr std::uint32_t kV2 = 36 | 2U << 24, kV3 = sizeof(FabricInfoV) | 3U << 24;
  return on_card(device, [&](const Here&) -> Return {
    if (out == nullptr) return kInvalidArgument;
    const std::uint32_t version = out->version;
    if (version != kV2 && version != kV3) return kVersionMismatch;
    std::memset(out, 0, version == kV3 ? sizeof *out : 36);
    out->version = version;
    return kSuccess;
  });
}

}  // namespace carve::sim::nvml
