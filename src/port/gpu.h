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

/// How the vendor's library answers now. A named state, shown by every view.
enum class GpuState : std::uint8_t {
  kStarting,  // not asked yet
  kOk,
  kAbsent,   // no library, no driver or no card: `reason` says which
  kHanging,  // a call ran into its deadline; the worker was killed and is started again
};

/// The driver's own files: what goes into the private folder of a slice.
struct DriverFiles {
  std::string cuda;  // path of the driver's libcuda.so.1, resolved; empty when there is none
  std::string nvml;  // the same of libnvidia-ml.so.1
};

/// The cards of this machine as the driver lists them.
struct GpuInventory {
  std::string driver_version;
  std::string cuda_version;  // "13.0"
  std::vector<Card> cards;
  std::vector<std::string> pci_bus_ids;  // one per card, same order
  std::vector<CardId> unwatched;         // whose XIDs the driver does not tell
  LinkMatrix links;
  DriverFiles files;
};

/// One process on one card, as the driver's library tells.
struct GpuProcess {
  std::int32_t pid = 0;          // host PID
  Bytes memory;                  // Bytes::max(): not available
  std::uint32_t sm_percent = 0;  // of the last second; 0 when there is no sample
};

/// One card's use by the driver's word.
struct GpuUsage {
  CardId card;
  bool lost = false;                      // the driver says so, or that it needs a reset
  std::optional<std::uint32_t> recovery;  // what the driver recommends to do (0: nothing); nullopt: it tells none
  Bytes used;
  std::uint32_t utilization_percent = 0;
  std::uint32_t temperature_c = 0;
  std::uint32_t power_mw = 0;
  std::vector<GpuProcess> processes;
};

/// The driver reports a critical error of a card, unasked.
struct GpuEvent {
  CardId card;
  std::uint32_t xid = 0;
};

/// The driver's management library, behind a process that can be killed. Every call has a deadline of its own
/// (1 s) and is safe from any thread; calls are serialised.
class Gpu {
 public:
  virtual ~Gpu() = default;
  ///   errors  kUnavailable: no library, no driver; kDeadlineExceeded: it hangs
  virtual Result<GpuInventory> inventory() = 0;
  /// All cards of the last inventory. Errors as inventory().
  virtual Result<std::vector<GpuUsage>> usage() = 0;
  /// What the driver reported since the last call, in order; waits up to `timeout` for the first. Nothing that the
  /// library handed out is lost, also when it is started anew; what happens while it is away, it does not hand out.
  /// From one thread; beside the calls above.
  virtual std::vector<GpuEvent> wait_events(std::chrono::milliseconds timeout) = 0;
  /// The next call opens the library anew: the way to see a card that was lost and is back.
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
