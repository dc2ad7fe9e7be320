#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/card.h"
#include "core/topology/links.h"

namespace carve {

/// The state of the vendor's library. Every view shows it.
enum class GpuState : std::uint8_t {
  kStarting,  // not queried yet
  kOk,
  kAbsent,   // no library, no driver or no card: `reason` says which
  kHanging,  // a call exceeded its deadline; the worker was killed and is being restarted
};

/// The driver's own files, which are placed in the private folder of a slice.
struct DriverFiles {
  std::string cuda;  // resolved path of the driver's libcuda.so.1; empty when there is none
  std::string nvml;  // the same for libnvidia-ml.so.1
};

/// The cards of this machine as the driver lists them.
struct GpuInventory {
  std::string driver_version;
  std::string cuda_version;  // "13.0"
  std::vector<Card> cards;
  std::vector<std::string> pci_bus_ids;  // one per card, in the same order
  std::vector<CardId> unwatched;         // the driver does not report their XIDs
  LinkMatrix links;
  DriverFiles files;
};

/// One process on one card, as the driver's library reports it.
struct GpuProcess {
  std::int32_t pid = 0;          // host PID
  Bytes memory;                  // Bytes::max(): not available
  std::uint32_t sm_percent = 0;  // during the last second; 0 when there is no sample
};

/// What the parts of a card did since the driver was asked before: the part of the time, 0 to 1. From the driver's
/// performance counters, which cards before Hopper do not have. nullopt: not reported.
struct CardActivity {
  std::optional<double> graphics;  // any work ran
  std::optional<double> sm;        // of the multiprocessors
  std::optional<double> tensor;    // the tensor cores of any kind
  std::optional<double> memory;    // the bandwidth to the card's memory
};

/// The use of one card, as the driver reports it.
struct GpuUsage {
  CardId card;
  bool lost = false;                      // the driver reports that the card is lost or needs a reset
  std::optional<std::uint32_t> recovery;  // the recommended action (0: none); nullopt: not reported
  Bytes used;
  std::uint32_t utilization_percent = 0;
  std::uint32_t temperature_c = 0;
  std::uint32_t power_mw = 0;
  std::uint32_t sm_clock_mhz = 0;  // 0: not reported, as the next one
  std::uint32_t memory_clock_mhz = 0;
  std::optional<std::uint32_t> memory_busy_percent;  // of the time, memory was read or written
  std::optional<std::uint64_t> energy_mj;            // since the driver was loaded
  CardActivity activity;
  std::vector<GpuProcess> processes;
};

/// A critical error of a card that the driver reported as an event.
struct GpuEvent {
  CardId card;
  std::uint32_t xid = 0;
};

/// The driver's management library, in a process that can be killed. Every call has its own deadline (1 s) and is safe
/// from any thread; calls are serialised.
class Gpu {
 public:
  virtual ~Gpu() = default;
  ///   errors  kUnavailable: no library, no driver; kDeadlineExceeded: the library hangs
  virtual Result<GpuInventory> inventory() = 0;
  /// All cards of the last inventory. Errors as inventory().
  virtual Result<std::vector<GpuUsage>> usage() = 0;
  /// The events since the last call, in order. Waits up to `timeout` for the first one. No event that the library
  /// delivered is lost, even when the library is restarted; the library does not deliver events that occur while it is
  /// away. Call it from one thread only; it may run concurrently with the calls above.
  virtual std::vector<GpuEvent> wait_events(std::chrono::milliseconds timeout) = 0;
  /// The next call re-opens the library. This is how a card that was lost and is back becomes visible.
  virtual void renew() = 0;
  [[nodiscard]] virtual GpuState state() const = 0;
  [[nodiscard]] virtual std::string reason() const = 0;  // empty when kOk
};

[[nodiscard]] constexpr const char* to_string(GpuState state) {
  switch (state) {
    case GpuState::kStarting:
      return "starting";
    case GpuState::kOk:
      return "ok";
    case GpuState::kAbsent:
      return "absent";
    case GpuState::kHanging:
      return "hanging";
  }
  return "?";
}

}  // namespace carve
