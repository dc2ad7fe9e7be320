#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "app/agent/compute_debt.h"
#include "app/agent/offences.h"
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
  std::vector<double> charged_percent;    // per card since the previous round, by the arbiter's account
  bool pages_known = true;                // what the three above say is of now; else only memory and cards are judged
  std::vector<Bytes> spare = {};          // per card: its part of what is promised to no slice; absent: plenty
  // As charged_percent: the slice held the card's lease; nullopt: the arbiter does not report it.
  std::vector<std::optional<double>> granted_percent = {};
  std::vector<double> drained_percent = {};  // as charged_percent: its work ran on past a lease, excused
  std::string user = {};                     // offender_of: earlier offences count against it; empty: unknown
  bool revoked = false;                      // its leases were revoked: it may use nothing any more
};

/// One process on one card in one round; `slice` is whose it is by the kernel's word, empty: foreign.
struct Sighting {
  std::string slice;
  CardId card;
  GpuProcess process;
};

enum class BreachKind : std::uint8_t {
  kUnregistered,
  kForeignCard,
  kMemory,
  kMemoryBrief,  // over the limit, and back before it counted: told, and it has its price
  kUnexplained,  // the card's memory is used, and nothing explains by whom
  kCompute,
};
[[nodiscard]] const char* to_string(BreachKind kind);

struct Breach {
  BreachKind kind = BreachKind::kUnregistered;
  std::string slice;
  CardId card;
  std::vector<std::int32_t> pids;
  std::string text;      // for the log and the views
  double allowed = 100;  // kCompute: per cent of the card
  double seen = 0;
  ComputeStep step = ComputeStep::kNone;  // kCompute: the step of the policy `escalate`
  bool certain = true;                    // false: an honest long kernel explains it; the slice is not ended
  bool ends_slice = false;  // its price has grown so far: all of the slice ends, not only `pids`
};

/// The bounds. A breach counts only when it was seen for its time, so that what is being set up or torn down
/// is not taken for one.
struct WatchBounds {
  Clock::Duration unregistered_for = std::chrono::milliseconds(200);  // two rounds
  Clock::Duration memory_for = std::chrono::milliseconds(400);
  // What the driver may take for a slice beyond what was announced for it (modules, local memory) before the next
  // correction; above the limit by more than this is a breach, however many processes share it. It comes out of what
  // the card has promised to nobody (WatchedSlice::spare). Of a card that is promised to the last byte an honest
  // slice needs a little all the same, for what the driver rounds up: the least.
  Bytes per_slice = Bytes::mib(256);
  Bytes least_per_slice = Bytes::mib(64);
  // Short breaches of one slice: each that is seen halves the time that the next may last; from this one on, what is
  // seen ends the slice at once. One is forgiven after that long without.
  int ended_at = 4;
  Clock::Duration forgiven_after = std::chrono::seconds(15);
  ComputeBounds compute;
  OffenceBounds offences;
};

class Watchdog {
 public:
  explicit Watchdog(WatchBounds bounds = {}) : bounds_(bounds) {}

  /// One round; `now` grows. Every breach that has lasted is reported once per second while it lasts.
  std::vector<Breach> judge(const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings,
                            Clock::Time now);

  /// Whether a slice has a price to pay for short breaches: it is to be looked at more often.
  [[nodiscard]] bool wary(Clock::Time now) const;

  /// What the driver took beyond what was announced, per slice and card index, from the same sightings.
  [[nodiscard]] static std::map<std::pair<std::string, std::size_t>, Bytes> overheads(
      const std::vector<WatchedSlice>& slices, const std::vector<Sighting>& sightings);

 private:
  /// What NVML says of one slice on one card, all its processes together.
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
  struct Price {
    int count = 0;
    bool over = false;  // in the last round
    bool told = false;  // this one
    Bytes most;         // of this one
    Clock::Time last{};  // seen over its bound
  };
  [[nodiscard]] Bytes tolerance_of(const WatchedSlice& slice, std::size_t index) const;
  static Sums sums_of(const std::vector<Sighting>& sightings);
  void judge_process(const WatchedSlice& slice, const Sighting& seen, Clock::Time now, std::vector<Breach>* breaches);
  void judge_memory(const WatchedSlice& slice, std::size_t index, const Sum& sum, Clock::Time now,
                    std::vector<Breach>* breaches);
  void judge_compute(const WatchedSlice& slice, std::size_t index, const Sum& sum, bool starving, Clock::Time now,
                     std::vector<Breach>* breaches);
  /// Whether another slice on the card was granted the card but, by the driver's account, used less than the grant and
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
  std::map<std::pair<std::string, CardId>, Price> prices_;
  std::map<std::pair<std::string, CardId>, Computing> computing_;
  Offences offences_;
};

}  // namespace carve
