#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "codec/kubelet/node_pod.h"
#include "core/model/slice.h"

namespace carve::plugins {

/// The cards that slots use: cards of which pods hold slices, and cards in the records of pods that are on this node
/// and have not ended (some of a pod's containers may hold their slices, others not yet). Claims' cards are not
/// included. Pure. O(held + pods), plus the decoding of each pod's record.
[[nodiscard]] std::set<CardId> cards_of_slots(const std::vector<Slice>& held, const std::vector<codec::NodePod>& pods);

/// Keeps a card a little longer than slots use it. If pods follow each other on a card, this saves two writes and a
/// scheduling attempt for each, and no claim gets the card between two of them. For one thread.
class SlotCards {
 public:
  static constexpr auto kLonger = std::chrono::seconds(5);

  /// The cards that were in use at most kLonger before `now`. `now` must not decrease.
  [[nodiscard]] std::set<CardId> step(const std::set<CardId>& in_use, Clock::Time now);

 private:
  std::map<CardId, Clock::Time> last_used_;
};

}  // namespace carve::plugins
