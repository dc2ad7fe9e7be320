#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// The simulated cards: one table of models, and the machine that a profile such as "h200x2" names. Static facts only.
// The daemon has the state of a card (protocol/messages.h).
namespace carve::sim {

inline constexpr std::uint32_t kMaxCards = 16;

/// One row of the table. The figures are those of the vendor's data sheets and of NVML on such a card. Context and
/// reserved bytes are rounded from published nvidia-smi outputs.
struct Model {
  std::string_view key;           // "h200"
  std::string_view name;          // the name in NVML and cuDeviceGetName; ends in " (SIMULATED)"
  std::string_view architecture;  // "Hopper"
  std::uint64_t memory_bytes;     // what NVML calls total
  std::uint64_t reserved_bytes;   // the part that no process can have (page tables, ECC, firmware)
  std::uint64_t context_bytes;    // the memory of one context
  std::uint32_t sm_count;
  std::uint32_t compute_major;
  std::uint32_t compute_minor;
  std::uint32_t cores_per_sm;
  std::uint32_t sm_clock_mhz;  // boost clock
  std::uint32_t sm_clock_idle_mhz;
  std::uint32_t memory_clock_mhz;
  std::uint32_t memory_bus_bits;
  std::uint32_t l2_bytes;
  std::uint32_t shared_per_sm;         // bytes
  std::uint32_t shared_per_block_max;  // bytes, opt-in
  std::uint32_t threads_per_sm;
  std::uint32_t blocks_per_sm;
  std::uint32_t power_limit_mw;
  std::uint32_t power_idle_mw;
  std::uint32_t pci_device_id;  // device << 16 | vendor, as NVML prints it
  std::uint32_t pci_subsystem_id;
  std::uint32_t pcie_generation;
  std::uint32_t nvlink_links;  // per card, all through a switch; 0 = PCIe only
  std::uint32_t nvlink_version;
  std::uint32_t host_copy_gb_per_s;    // host ↔ device
  std::uint32_t device_copy_gb_per_s;  // within the device
  std::uint32_t slice_us;              // time slice between processes
  std::uint32_t switch_us;             // context switch between processes
};

/// All models, in the order of the error text.
std::span<const Model> models();

/// One card of a machine.
struct CardFacts {
  std::uint32_t index;  // the driver's index, and N of /dev/nvidiaN
  char uuid[48];        // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", NUL-terminated
  std::uint8_t uuid_bytes[16];
  char serial[16];
  std::uint32_t pci_domain;
  std::uint32_t pci_bus;
  std::uint32_t pci_device;
  std::uint32_t numa_node;
};

/// A machine: `count` cards of one model.
struct Machine {
  const Model* model = nullptr;
  std::uint32_t count = 0;
  CardFacts cards[kMaxCards] = {};
};

/// Parses "h200x2", "t4" (one card). Model names are lower case; 1 to 16 cards.
///   instance  makes UUIDs and serials differ between instances; the same text gives the same ones
///   errors    false, and `error` says what is wrong and what is legal
bool parse_machine(std::string_view profile, std::string_view instance, Machine* out,
                   std::string* error);

/// The connection between two different cards.
enum class Link { kNvlink, kSameSwitch, kSameNode, kOtherNode };
Link link_between(const Machine& machine, std::uint32_t a, std::uint32_t b);

}  // namespace carve::sim
