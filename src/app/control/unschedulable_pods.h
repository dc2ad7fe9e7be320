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

/// Pods for which a filter call found no node, and where cards alone stood in their way. kube-scheduler asks extenders
/// only about nodes that passed everything else (CPU, taints, affinity, volumes): so these are the nodes on which it
/// helps a pod that somebody with cards goes, by its own word. Safe from any thread.
class UnschedulablePods {
 public:
  static constexpr std::size_t kMost = 10'000;  // pods; above, the oldest is forgotten
  static constexpr Clock::Duration kInARow = std::chrono::seconds(1);  // from one call to the next

  struct Note {
    std::shared_ptr<const std::vector<std::string>> nodes;
    Clock::Time at{};
    Clock::Time since{};    // the first of the calls that came in a row
    std::size_t asked = 0;  // nodes of the call, with those that are none for it; 0: another replica's word
  };

  void put(const std::string& uid, std::vector<std::string> nodes, Clock::Time now, std::size_t asked = 0);
  /// It was served.
  void forget(const std::string& uid);
  [[nodiscard]] std::optional<Note> find(const std::string& uid) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Note> notes_;  // by UID
};

}  // namespace carve::control
