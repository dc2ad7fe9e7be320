#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "app/agent/watchdog.h"
#include "base/clock.h"
#include "core/model/card.h"

// Memory of a card that no list explains. NVML lists only processes with contexts, but memory can be taken without one.
namespace carve {

struct UnexplainedBounds {
  /// Per card: the memory that its driver may briefly hold beyond its lists.
  Bytes tolerance = Bytes::mib(256);
  /// The memory that a driver keeps for itself is learnt as the minimum of all unexplained figures, up to this bound.
  Bytes most_baseline = Bytes::mib(768);
  /// A process that ends leaves NVML's list before its memory is free.
  Clock::Duration lasting = std::chrono::milliseconds(200);  // two rounds
};

/// One card in one round.
struct CardMemory {
  CardId card;
  Bytes used;       // by the driver
  Bytes explained;  // explained_on()
};

/// The memory of one card that the driver's list and the ledger explain. It is the sum of what NVML lists outside
/// slices and, for each slice, the larger of two figures: what NVML lists, and what its processes announced. The
/// announced figure counts up to the limit, so a false figure explains no more than what is reserved for the slice
/// anyway. nullopt: unknown (a process without a figure, a whole card).
///   cost  O(slices + sightings); pure
[[nodiscard]] std::optional<Bytes> explained_on(const CardId& card, const std::vector<WatchedSlice>& slices,
                                                const std::vector<Sighting>& sightings);

/// The judgement over several rounds. Pure: time is a parameter.
class UnexplainedMemory {
 public:
  explicit UnexplainedMemory(UnexplainedBounds bounds = {}) : bounds_(bounds) {}
  struct Finding {
    Bytes bytes;
    bool report = false;  // for the first time, and then once per second
  };
  /// One round of one card; `now` grows. Returns the memory that nothing explains if it has lasted. Each round returns
  /// it, because the suspects of one round may be ambiguous: a process that starts is not in the driver's list yet.
  std::optional<Finding> look(const CardMemory& seen, Clock::Time now);

 private:
  struct Case {
    Bytes baseline = Bytes::max();
    std::optional<Clock::Time> since;
    std::optional<Clock::Time> told;
  };
  UnexplainedBounds bounds_;
  std::map<CardId, Case> cases_;
};

/// A process that holds the card's device file open.
struct CardHolder {
  std::int32_t pid = 0;
  std::string slice;       // empty: not in a slice
  bool listed = false;     // NVML lists it on this card: its memory is explained
  bool registered = false;  // sent a hello to the library's socket
};

/// The processes that may hold the unexplained memory: the holders that NVML does not list. If a slice has holders
/// among them that never sent a hello, only those are returned. Empty: no such process is visible.
[[nodiscard]] std::vector<CardHolder> suspects_among(const std::vector<CardHolder>& holders);

}  // namespace carve
