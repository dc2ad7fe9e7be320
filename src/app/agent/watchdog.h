#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "core/model/slice.h"
#include "port/gpu.h"

// The second line's judgement: NVML's per-process truth against what was granted and announced. Pure: it is
// given what was seen, and says what is wrong; the agent acts.
namespace carve {

/// One slice as seen in one round.
struct WatchedSlice {
  std::string id;
  bool whole = false;
  std::vector<Slice> cards;
  std::set<std::int32_t> registered;      // said hello
  std::vector<Bytes> announced;           // per card
  std::vector<double> delivered_percent;  // per card, by the pages or the arbiter, the larger
};

/// One process on one card in one round; `slice` is whose it is by the kernel's word, empty: foreign.
struct Sighting {
  std::string slice;
  CardId card;
  GpuProcess process;
};

enum class BreachKind : std::uint8_t { kUnregistered, kForeignCard, kMemory, kCompute };
[[nodiscard]] const char* to_string(BreachKind kind);

struct Breach {
  BreachKind kind = BreachKind::kUnregistered;
  std::string slice;
  CardId card;
  std::vector<std::int32_t> pids;
  std::string text;      // for the log and the views
  double allowed = 100;  // kCompute: per cent of the card
  double seen = 0;
};

/// The bounds. A breach counts only when it was seen for its time, so that what is being set up or torn down
/// is not taken for one.
struct WatchBounds {
  Clock::Duration unregistered_for = std::chrono::milliseconds(200);  // two rounds
  Clock::Duration memory_for = std::chrono::milliseconds(400);
  Clock::Duration compute_for = std::chrono::seconds(2);
  // What the driver may take for a process beyond what was announced for it (modules, local memory) before
  // the next correction; above the limit by more than this is a breach.
  Bytes per_process = Bytes::mib(256);
  double compute_points = 25;  // NVML's samples are coarse
  // Who was once seen to breach compute is frozen for a part of every second, and uses nothing then: for so long
  // after it was last seen the breach goes on, and fewer points are enough.
  Clock::Duration compute_forgiven_after = std::chrono::seconds(3);
  double compute_points_again = 15;
};

class Watchdog {
 public:
  explicit Watchdog(WatchBounds bounds = {}) : bounds_(bounds) {}

  /// One round; `now` grows. Every breach that has lasted is reported once per second while it lasts.
  std::vector<Breach> judge(const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings,
                            Clock::Time now);

  /// What the driver took beyond what was announced, per slice and card index, from the same sightings.
  [[nodiscard]] static std::map<std::pair<std::string, std::size_t>, Bytes> overheads(
      const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings);

 private:
  using Key = std::tuple<BreachKind, std::string, CardId, std::int32_t>;
  struct Strike {
    Clock::Time since;
    Clock::Time last_round;
    Clock::Time reported;
    double seen = 0;  // kCompute: the most in any round
  };
  [[nodiscard]] bool convicted(const Key& key) const;
  bool lasted(const Key& key, Clock::Duration need, Clock::Time now);

  WatchBounds bounds_;
  std::map<Key, Strike> strikes_;
};

}  // namespace carve
