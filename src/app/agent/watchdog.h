#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "app/agent/compute_debt.h"
#include "app/agent/offences.h"
#include "app/agent/tolerance.h"
#include "base/clock.h"
#include "core/model/slice.h"
#include "port/gpu.h"

// The judgement of the second line: compares NVML's figures per process with what was granted and announced. Pure: it
// takes observations and returns the breaches; the agent acts.
namespace carve::agent {

/// One slice as observed in one round.
struct WatchedSlice {
  std::string id;
  bool whole = false;
  std::vector<Slice> cards;
  std::set<std::int32_t> registered;      // sent a hello
  std::vector<Bytes> announced;           // per card
  std::vector<double> charged_percent;    // per card since the previous round, by the arbiter's account
  bool pages_known = true;                // the three above are current; false: only memory and cards are judged
  std::vector<Bytes> spare = {};          // per card: what the card has promised to no slice; absent: enough
  // In percent, as charged_percent: the slice held the card's lease; nullopt: the arbiter does not report it.
  std::vector<std::optional<double>> granted_percent = {};
  std::vector<double> drained_percent = {};  // as charged_percent: its work ran on past a lease, excused
  std::string user = {};                     // offender_of: earlier offences count against it; empty: unknown
  bool revoked = false;                      // its leases were revoked: it may not use the card any more
};

/// One process on one card in one round. `slice` is the slice that the kernel shows for the process; empty: foreign.
struct Sighting {
  std::string slice;
  CardId card;
  GpuProcess process;
};

enum class BreachKind : std::uint8_t {
  kUnregistered,
  kForeignCard,
  kMemory,
  kMemoryBrief,  // over the limit, but below it again before it counted: reported, and shortens the next tolerance
  kUnexplained,  // memory of the card is in use, and neither NVML nor the ledger explains it
  kCompute,
};
[[nodiscard]] const char* to_string(BreachKind kind);

struct Breach {
  BreachKind kind = BreachKind::kUnregistered;
  std::string slice;
  CardId card;
  std::vector<std::int32_t> pids;
  std::string text;      // for the log and the views
  double allowed = 100;  // kCompute: percent of the card
  double seen = 0;
  ComputeStep step = ComputeStep::kNone;  // kCompute: the step of the policy `escalate`
  bool certain = true;                    // false: an honest long kernel explains it; the slice is not ended
  bool ends_slice = false;  // after too many short breaches: the whole slice ends, not only `pids`
};

/// The bounds. A breach counts only after it was observed for the given time, so that a process that starts or ends is
/// not treated as a breach.
struct WatchBounds {
  Clock::Duration unregistered_for = std::chrono::milliseconds(200);  // two rounds
  Clock::Duration memory_for = std::chrono::milliseconds(400);
  // The memory that the driver may take for a slice beyond what the slice announced (modules, local memory) before the
  // next correction. More than this above the limit is a breach.
  ToleranceBounds tolerance;
  // Short breaches of one slice. Each observed breach halves the time that the next may last. From breach number
  // `ended_at` on, a breach ends the slice immediately. One breach is forgiven after each `forgiven_after` without a
  // breach.
  int ended_at = 4;
  Clock::Duration forgiven_after = std::chrono::seconds(15);
  ComputeBounds compute;
  OffenceBounds offences;
};

class Watchdog {
 public:
  explicit Watchdog(WatchBounds bounds = {}) : bounds_(bounds) {}

  /// One round; `now` never decreases. Every breach that has lasted is reported once per second while it continues.
  std::vector<Breach> judge(const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings,
                            Clock::Time now);

  /// True if a slice has short breaches that still count: such a slice must be observed more often.
  [[nodiscard]] bool needs_frequent_rounds(Clock::Time now) const;

  /// What the slice keeps back from its own limit on its card number `index`, by the last round: tolerance.h. Nothing
  /// for a slice that is alone on its card, because it cannot take what another slice was promised.
  [[nodiscard]] Bytes kept_back(const std::string& slice, std::size_t index) const;
  /// What the slices of the card held above their limits in the last round, each up to its greatest tolerance.
  [[nodiscard]] Bytes beyond_limits(const CardId& card) const;

  /// The memory that the driver took beyond the announced memory, per slice and card index, from the same sightings.
  [[nodiscard]] static std::map<std::pair<std::string, std::size_t>, Bytes> overheads(
      const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings);

 private:
  /// NVML's figures of one slice on one card, all its processes together.
  struct Sum {
    Bytes memory;
    double sm_percent = 0;
    std::vector<std::int32_t> pids;
  };
  using Sums = std::map<std::pair<std::string, CardId>, Sum>;
  using Key = std::tuple<BreachKind, std::string, CardId, std::int32_t>;
  struct Strike {
    Clock::Time since;
    Clock::Time last_round;
    Clock::Time reported;
  };
  /// The short breaches of one slice on one card.
  struct BreachHistory {
    int count = 0;          // breaches that are not forgiven yet
    bool over = false;      // over its bound in the last round
    bool reported = false;  // the current breach was reported
    Bytes most;             // of the current breach
    Clock::Time last{};     // when it was last seen over its bound
  };
  void measure_margins(const std::vector<WatchedSlice>& slices, const Sums& sums);
  static Sums sums_of(const std::vector<Sighting>& sightings);
  void judge_process(const WatchedSlice& slice, const Sighting& seen, Clock::Time now, std::vector<Breach>* breaches);
  void judge_memory(const WatchedSlice& slice, std::size_t index, const Sum& sum, Clock::Time now,
                    std::vector<Breach>* breaches);
  void judge_compute(const WatchedSlice& slice, std::size_t index, const Sum& sum, bool starving, Clock::Time now,
                     std::vector<Breach>* breaches);
  /// True if another slice on the card was granted the card but, by the driver's account, used less than the grant and
  /// less than its guarantee.
  static bool starves(const std::vector<WatchedSlice>& slices, const Sums& sums, const WatchedSlice& except,
                      const CardId& card, double points);
  /// One slice's compute on one card.
  struct Computing {
    ComputeDebt debt;
    bool begun = false;
    bool caught = false;  // the offence of its user was recorded
    double peak = 0;      // the maximum use in a round of the last two seconds, percent
    Clock::Time peak_at{};
    ComputeStep reported = ComputeStep::kNone;
    Clock::Time reported_at{};
  };
  static ComputeRound round_of(const WatchedSlice& slice, std::size_t index, const Sum& sum, bool starving);
  static Breach compute_breach(const WatchedSlice& slice, std::size_t index, const Sum& sum,
                               const ComputeRound& round, const Computing& one);
  bool lasted(const Key& key, Clock::Duration need, Clock::Time now);

  WatchBounds bounds_;
  std::map<Key, Strike> strikes_;
  std::map<std::pair<std::string, CardId>, BreachHistory> histories_;
  std::map<std::pair<std::string, CardId>, Computing> computing_;
  std::map<std::pair<std::string, std::size_t>, Margin> margins_;  // of the last round, by slice and index of its card
  std::map<CardId, Bytes> beyond_;                                 // beyond_limits()
  Offences offences_;
};

}  // namespace carve::agent
