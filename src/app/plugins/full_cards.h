#pragma once

#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "core/model/slice.h"
#include "port/gpu.h"

namespace carve::plugins {

/// Cards on which a claim was refused because they have no room: kube-scheduler counts only claims there, and promised
/// more memory, compute or slices than the card has. Until there is room, such a card must not be promised again. An
/// unhealthy card has no room. Safe from any thread.
class FullCards {
 public:
  /// A claim that is still refused repeats the refusal: the kubelet retries every one to two minutes.
  static constexpr Clock::Duration kForget = std::chrono::minutes(5);

  /// A claim with these slices was refused for lack of room on one of their cards.
  ///   held   all slices of the node
  void refused(const std::vector<Slice>& slices, const std::vector<Slice>& held, const GpuInventory& cards,
               Clock::Time now);
  /// The cards that still have no room for the smallest claim that they refused. `held` and `cards` are current.
  [[nodiscard]] std::set<CardId> cards(const std::vector<Slice>& held, const GpuInventory& cards, Clock::Time now);

 private:
  struct Refused {
    Slice smallest;
    Clock::Time last{};
  };
  Mutex mutex_;
  std::map<CardId, Refused> refused_ GUARDED_BY(mutex_);
};

}  // namespace carve::plugins
