#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "app/agent/watchdog.h"
#include "base/clock.h"
#include "core/model/card.h"

// Memory of a card that no list explains. NVML lists processes with contexts only; memory can be taken without one.
namespace carve {

struct UnexplainedBounds {
  /// Of one card: what its driver may hold beyond its lists for a moment.
  Bytes tolerance = Bytes::mib(256);
  /// What a driver keeps for itself is learnt as the least that was ever unexplained, up to this.
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

/// What the driver's list and the ledger explain of one card: for each slice the larger of what NVML lists and what
/// its processes announced, the latter up to the limit (a lie explains no more than what is set aside for its slice
/// anyway), and what NVML lists outside slices. nullopt: it cannot be told (a process without a figure, a whole card).
///   cost  O(slices + sightings); pure
[[nodiscard]] std::optional<Bytes> explained_on(const CardId& card, const std::vector<WatchedSlice>& slices,
                                                const std::vector<Sighting>& sightings);

/// The judgement over rounds. Pure: time is a parameter.
class UnexplainedMemory {
 public:
  explicit UnexplainedMemory(UnexplainedBounds bounds = {}) : bounds_(bounds) {}
  /// One round of one card; `now` grows. The memory that nothing explains, when it has lasted: once per second.
  std::optional<Bytes> look(const CardMemory& seen, Clock::Time now);

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
  std::string slice;       // empty: in none
  bool listed = false;     // NVML lists it on this card: its memory is explained
  bool registered = false;  // said hello to the library's socket
};

/// Who may hold what nothing explains: the holders that NVML does not list; of these, where one slice has holders that
/// never said hello, those alone. Empty: nobody that can be seen.
[[nodiscard]] std::vector<CardHolder> suspects_among(const std::vector<CardHolder>& holders);

}  // namespace carve
