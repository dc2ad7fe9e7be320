#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "port/gpu.h"

// The messages between the agent and its NVML worker over a socket pair (SOCK_SEQPACKET): one request, one answer,
// plain data of fixed size. Both ends are the same binary, so there is no version.
namespace carve::nvml {

inline constexpr std::uint32_t kWireMagic = 0x4e564143;  // "CAVN"
inline constexpr std::size_t kMaxCards = 64;
inline constexpr std::size_t kMaxProcesses = 2048;
inline constexpr int kWorkerSocket = 3;            // the worker's descriptor for requests
inline constexpr int kWorkerEvents = 4;            // the worker's descriptor for events
inline constexpr std::uint32_t kNoRecovery = ~0U;  // the driver does not report a recommended action
inline constexpr std::uint32_t kNoPercent = ~0U;
inline constexpr std::uint64_t kNoEnergy = ~0ULL;

enum class Op : std::uint32_t { kInventory = 1, kUsage = 2 };

struct WireRequest {
  std::uint32_t magic = kWireMagic;
  Op op = Op::kInventory;
  std::uint32_t sequence = 0;
  std::uint32_t card = 0;        // kUsage: index in the inventory
  std::uint64_t generation = 0;  // kUsage: the generation of the inventory that `card` is from
};

/// Before every answer; `count` records of `record_bytes` follow.
struct WireHeader {
  std::uint32_t magic = kWireMagic;
  std::uint32_t sequence = 0;
  std::int32_t status = 0;   // an NVML return code
  std::uint32_t absent = 0;  // kInventory: no library or no driver
  std::uint32_t count = 0;
  std::uint32_t record_bytes = 0;
  std::uint64_t generation = 0;
  char text[256] = {};  // the error, for people
};

/// Links of one card to all others: LinkLevel and lanes.
struct WireCard {
  char uuid[96];
  char name[96];
  char bus_id[32];
  std::uint64_t memory_bytes;  // usable: the total without the driver's reserved part
  std::int32_t minor;
  std::int32_t numa_node;
  char architecture[16];
  char compute_capability[16];
  char pcie_root[16];  // "0000:17"
  std::uint32_t watched;  // not 0: the driver reports XIDs of this card
  std::uint8_t link_level[kMaxCards];
  std::uint8_t link_lanes[kMaxCards];
};

/// Follows the header of an inventory; the cards follow in the same packet.
struct WireMachine {
  char driver_version[96];
  char cuda_version[16];
  char cuda_file[512];
  char nvml_file[512];
  std::uint32_t cards;
};

struct WireUsage {
  std::uint64_t used_bytes;
  std::uint32_t utilization_percent;
  std::uint32_t temperature_c;
  std::uint32_t power_mw;
  std::uint32_t sm_clock_mhz;
  std::uint32_t memory_clock_mhz;
  std::uint32_t lost;  // the driver answers GPU_IS_LOST for the card
  std::uint32_t processes;
  std::uint32_t recovery;  // recommended action; kNoRecovery: not reported
  std::uint32_t memory_busy_percent;  // kNoPercent: not reported
  std::uint64_t energy_mj;            // kNoEnergy: not reported
  double activity[4];                 // of kActivityParts; NaN: not reported
};

inline constexpr std::optional<double> CardActivity::*kActivityParts[4] = {
    &CardActivity::graphics, &CardActivity::sm, &CardActivity::tensor, &CardActivity::memory};

/// An XID of a card, sent on kWorkerEvents without a request.
struct WireEvent {
  std::uint32_t magic = kWireMagic;
  std::uint32_t xid = 0;
  char uuid[96] = {};
};

struct WireProcess {
  std::int32_t pid;
  std::uint32_t sm_percent;
  std::uint64_t used_bytes;  // all ones: not available
};

}  // namespace carve::nvml
