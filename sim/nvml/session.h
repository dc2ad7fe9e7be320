// One process's connection to the simulated machine, for NVML: the cards, their memory, and their activity. It knows
// the daemon's protocol, so that the exported functions need not. Not thread-safe: library.cc calls it under one lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/model/profiles.h"
#include "sim/nvml/nvml_abi.h"

namespace carve::sim::nvml {

/// A card that this process may see: it can open /dev/nvidia<minor>, and that is a character device.
struct Card {
  std::uint32_t index = 0;  ///< NVML's index: position among the visible cards, in PCI order
  std::uint32_t minor = 0;  ///< the machine's card number, N of /dev/nvidiaN
};

struct MemoryUse {
  std::uint64_t total = 0;     ///< bytes on the card
  std::uint64_t reserved = 0;  ///< the part that no process can have
  std::uint64_t used = 0;      ///< held by processes (contexts and allocations), without reserved
};

struct ProcessUse {
  std::uint32_t pid = 0;    ///< in the daemon's PID namespace
  std::uint64_t bytes = 0;  ///< contexts and allocations on this card
};

/// The activity during one sampling period of 1/6 s that ended at time_us.
struct UsageSample {
  std::uint64_t time_us = 0;  ///< CLOCK_REALTIME
  std::uint32_t pid = 0;      ///< 0: the card as a whole
  std::uint32_t sm = 0;       ///< percent of the period, rounded down, in which a kernel ran
  std::uint32_t memory = 0;   ///< percent of the period in which memory was copied or set
};

class Session {
 public:
  /// Connects to the daemon's socket and finds the visible cards.
  ///   errors  kDriverNotLoaded: no daemon listens; kUnknown: the daemon has another protocol version
  static Return open(std::unique_ptr<Session>* out);
  ~Session();

  const Machine& machine() const { return machine_; }
  const std::vector<Card>& cards() const { return cards_; }

  /// kGpuIsLost when the card is lost; `recovery`: the action that the driver recommends.
  Return state(const Card& card, std::uint32_t* recovery = nullptr);
  Return memory(const Card& card, MemoryUse* out);
  Return processes(const Card& card, std::vector<ProcessUse>* out);
  /// Samples with time_us > since_us, oldest first; at most the last 72 periods (12 s).
  Return usage(const Card& card, std::uint64_t since_us, std::vector<UsageSample>* out);
  /// Nanoseconds since the card came up, and the part of them in which something ran.
  Return lifetime(const Card& card, std::uint64_t* up_ns, std::uint64_t* busy_ns);

 private:
  Session() = default;
  Machine machine_;
  std::vector<Card> cards_;
  struct Link;
  std::unique_ptr<Link> link_;
};

}  // namespace carve::sim::nvml
