#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "adapter/nvml/library.h"
#include "port/gpu.h"

namespace carve::nvml {

/// Reads the performance counters (GPM) of the cards of one inventory. They are differences between two samples, so the
/// first answer for a card has no figure. Cards before Hopper, and drivers before 525, have no such counters.
/// Not thread-safe: the worker's one thread calls it.
class ActivityReader {
 public:
  /// The devices of a new inventory, by index. Forgets all samples.
  void reset(const Api& api, std::size_t cards);

  /// What the card's parts did since an earlier call. The driver refreshes its counters every 100 ms: an earlier call
  /// than that returns the last figures.
  ///   cost  two calls of the driver
  [[nodiscard]] CardActivity read(const Api& api, std::size_t card, Device device);

 private:
  struct Samples {
    bool unsupported = false;
    GpmSample before = nullptr;
    GpmSample now = nullptr;
    std::optional<std::chrono::steady_clock::time_point> taken;  // `before`
    CardActivity last;
  };
  bool take_first(const Api& api, Device device, Samples* samples);

  std::vector<Samples> cards_;
};

}  // namespace carve::nvml
