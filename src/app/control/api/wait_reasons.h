#pragma once

#include <map>
#include <string>

#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "codec/views/cluster_view.h"
#include "core/policy/rules.h"

namespace carve::control {

/// The view of the cluster for a reader who looks often: like view_with_whys(), but the reasons why pods wait are kept,
/// and each call computes only some of them again, those that are oldest first. Safe from any thread.
class WaitReasons {
 public:
  explicit WaitReasons(const Clock& clock) : clock_(clock) {}

  ///   cost    view_of(); fit() for kNodesPerCall nodes in all, at least one pod
  [[nodiscard]] codec::ClusterView view(const ClusterModel& model, const ClaimBook& claims, const PlacementRules& rules)
      EXCLUDES(mutex_);
  static constexpr std::size_t kNodesPerCall = 20'000;

 private:
  struct Known {
    std::string why;
    Clock::Time at{};
  };
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Known> known_ GUARDED_BY(mutex_);  // by the pod's UID
};

}  // namespace carve::control
