#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/agent/suspects.h"
#include "app/agent/watchdog.h"
#include "base/clock.h"
#include "core/model/card.h"

// Detects memory of a card that no list explains. NVML lists only processes with contexts, but memory can be taken
// without one.
namespace carve::agent {

struct UnexplainedBounds {
  /// The tolerance of a card: the memory that its driver may hold beyond its lists. It is taken from memory that the
  /// card has promised to no slice, at most `most_tolerance`. On a full card it is `least_tolerance`, because the
  /// figures of a driver are not exact.
  Bytes most_tolerance = Bytes::mib(256);
  Bytes least_tolerance = Bytes::mib(64);
  /// The memory that a driver keeps for itself is learnt as the minimum of all unexplained figures, up to this bound.
  Bytes most_baseline = Bytes::mib(768);
  /// Growth of the unexplained memory after which the holders of the device file are recorded again.
  Bytes growth = Bytes::mib(64);
  /// How long unexplained memory must last to count: a process that ends leaves NVML's list before its memory is free.
  Clock::Duration lasting = std::chrono::milliseconds(200);  // two rounds
};

/// One card in one round.
struct CardMemory {
  CardId card;
  Bytes used;       // by the driver
  Bytes explained;  // explained_on()
  Bytes spare;      // promised to no slice, and not held by slices beyond their limits
};

/// The memory of one card that the driver's list and the ledger explain: the sum of what NVML lists outside slices and,
/// for each slice, the larger of what NVML lists and what its processes announced. The announced figure counts up to
/// the limit, so a false one explains no more than what is reserved for the slice anyway. nullopt: unknown (a process
/// without a figure, a whole card).
///   cost  O(slices + sightings); pure
[[nodiscard]] std::optional<Bytes> explained_on(const CardId& card, const std::vector<WatchedSlice>& slices,
                                                const std::vector<Sighting>& sightings);

/// The verdicts over several rounds. Pure: time is a parameter.
class UnexplainedMemory {
 public:
  explicit UnexplainedMemory(UnexplainedBounds bounds = {}) : bounds_(bounds) {}
  struct Finding {
    Bytes bytes;
    bool grew = false;    // since the last round for which this was true: see suspected()
    bool lasted = false;  // it has lasted and counts; before, an ending process may explain it
    bool report = false;  // for the first time since it counts, and then once per second
  };
  /// One round of one card; `now` never decreases. Returns the memory that nothing explains. Each round returns it,
  /// because the suspects of one round may be ambiguous: a process that starts is not in the driver's list yet.
  std::optional<Finding> look(const CardMemory& seen, Clock::Time now);

  /// The suspects, from the holders of the card's device file in the same round. Call it in each round with a finding
  /// that grew or lasted: only the holders at a growth can hold that memory.
  Suspicion suspected(const CardId& card, const Finding& finding, const std::vector<CardHolder>& holders,
                      Clock::Time now);
  /// The verdict in a round with a finding that lasted.
  Accusations::Verdict judge(const CardId& card, const Finding& finding, const Suspicion& suspicion, Clock::Time now);

 private:
  struct Case {
    Bytes baseline = Bytes::max();
    std::optional<Clock::Time> since;
    std::optional<Clock::Time> told;
    Bytes level;  // when it last grew
    std::set<std::string> at_growth;
    Accusations accusations;
  };
  UnexplainedBounds bounds_;
  std::map<CardId, Case> cases_;
};

}  // namespace carve::agent
