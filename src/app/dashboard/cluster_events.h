#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/views/board.h"
#include "port/kube_api.h"

namespace carve::dashboard {

/// The Kubernetes events that Carve's agents and control recorded, read at most every kEvery. Safe from any thread.
class ClusterEvents {
 public:
  ClusterEvents(KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}

  /// Adds the events to the board; the newest kMost. If they cannot be read, those of the last time.
  void add(codec::Board* board) EXCLUDES(mutex_);

  static constexpr std::chrono::seconds kEvery{3};
  static constexpr std::size_t kMost = 500;

 private:
  [[nodiscard]] Result<std::vector<codec::BoardEvent>> read() const;

  KubeApi& api_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<codec::BoardEvent> last_ GUARDED_BY(mutex_);
  Clock::Time next_ GUARDED_BY(mutex_){};
};

}  // namespace carve::dashboard
