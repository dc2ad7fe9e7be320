#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "codec/kubelet/node_pod.h"
#include "core/model/slice.h"

namespace carve::doors {

/// What the slot door uses: the cards that pods hold something of, and those that the records of pods name which are
/// here and have not ended (of a pod's containers some may hold theirs and others not yet). Claims' cards are not among
/// them. Pure. O(held + pods), and the decoding of each pod's record.
[[nodiscard]] std::set<CardId> cards_of_slots(const std::vector<Slice>& held, const std::vector<codec::NodePod>& pods);

/// What is kept from new claims.
struct SlotUse {
  std::set<CardId> cards;
  bool known = true;     // false: perhaps more than these
  bool awaited = false;  // not known yet, and about to be: until then no card is offered that was not
};

/// Keeps a card a little longer than slots use it. Where pods follow each other on it not every one costs two writes
/// and a look of the scheduler, and no claim is let in between two of them. One thread's.
class SlotCards {
 public:
  static constexpr auto kLonger = std::chrono::seconds(5);

  /// What was in use at most kLonger before `now`. `now` does not go back.
  [[nodiscard]] std::set<CardId> step(const std::set<CardId>& in_use, Clock::Time now);

 private:
  std::map<CardId, Clock::Time> last_used_;
};

}  // namespace carve::doors
