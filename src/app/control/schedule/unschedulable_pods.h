#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/control/state/change_queue.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "core/cluster/fit_cache.h"
#include "core/model/record.h"

namespace carve::control {

/// Pods for which a filter call found no node, with the nodes where they lacked only cards. kube-scheduler calls
/// extenders only for nodes that passed all its other filters (CPU, taints, affinity, volumes). So these are the nodes
/// where evicting a pod that holds cards would help. Safe from any thread.
class UnschedulablePods {
 public:
  static constexpr std::size_t kMost = 10'000;                         // pods; beyond this number the oldest is dropped
  static constexpr Clock::Duration kInARow = std::chrono::seconds(1);  // the longest gap between two consecutive calls

  struct Note {
    std::shared_ptr<const std::vector<std::string>> nodes;
    Clock::Time at{};
    Clock::Time since{};    // the first of the consecutive calls
    std::size_t asked = 0;  // nodes in the call, including those that can never serve the pod; 0: from another replica
  };

  void put(const std::string& uid, std::vector<std::string> nodes, Clock::Time now, std::size_t asked = 0);
  /// After a filter call: remembers the nodes that may have room later, or forgets the pod if a node serves it.
  void observe(const Owner& owner, const FitView& fit, Clock::Time now);
  /// Another replica's report of a pod that no node served (codec::encode_turned_away).
  ///   errors  kInvalidArgument: the report is invalid
  [[nodiscard]] Result<void> put_report(std::string_view report, Clock::Time now);
  /// The pod was served.
  void forget(const std::string& uid);
  [[nodiscard]] std::optional<Note> find(const std::string& uid) const;
  /// Publishes the pod of each put().
  [[nodiscard]] const ChangeFeed& changes() const { return changes_; }

 private:
  ChangeFeed changes_;
  mutable Mutex mutex_;
  std::map<std::string, Note> notes_ GUARDED_BY(mutex_);  // by UID
};

}  // namespace carve::control
