#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

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
  /// The pod was served.
  void forget(const std::string& uid);
  [[nodiscard]] std::optional<Note> find(const std::string& uid) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Note> notes_;  // by UID
};

}  // namespace carve::control
