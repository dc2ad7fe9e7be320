#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>

#include "app/control/state/cluster_model.h"
#include "base/mutex.h"
#include "port/kube_api.h"

namespace carve::control {

/// Finds out whether the model contains all decisions of the previous leader. Watches lag behind the server by an
/// unknown time. So a new leader lists all pods, from the server itself, and each decision on the list must appear in
/// the model. In a large cluster that list takes longer than the Lease lasts: one thread does the work, and the thread
/// that renews the Lease only polls the result.
class TakeoverResync {
 public:
  /// If the model does not show a decision this long after it was read from the server, its pod is read again: the pod
  /// may be deleted, and then the model will never show the decision.
  static constexpr Clock::Duration kPatience = std::chrono::seconds(1);
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(50);

  TakeoverResync(KubeApi& api, const ClusterModel& model, Clock& clock) : api_(api), model_(model), clock_(clock) {}

  /// For Leader::World::caught_up. True: the model contains all decisions that were written before this term. The first
  /// call for a term starts the work. Never blocks. Any thread.
  ///   errors  the API server's, from the last round; another round follows
  [[nodiscard]] Result<bool> operator()(std::uint64_t term);
  /// Works on the requested term until `stop`.
  void run(const std::stop_token& stop);
  /// One round. One thread.
  ///   cost    one list of all pods per term; per kPatience one GET for each decision that the model does not show
  void step(const std::stop_token& stop = {});

 private:
  struct Decision {
    std::string path;  // the pod's
    std::string node;
    std::string record;
  };
  Result<bool> resync(std::uint64_t term, const std::stop_token& stop);
  Result<void> list();
  Result<void> read_pending(std::uint64_t term, const std::stop_token& stop);
  [[nodiscard]] bool seen(const std::string& uid, const Decision& decided) const;
  [[nodiscard]] bool requested(std::uint64_t term) const;
  /// Waits until there is work, or until `stop`.
  void wait_for_request(const std::stop_token& stop);

  KubeApi& api_;
  const ClusterModel& model_;
  Clock& clock_;
  // Used by the working thread only.
  std::uint64_t listed_term_ = 0;            // the term of the last list
  Clock::Time last_read_{};                  // the last read from the server
  std::map<std::string, Decision> pending_;  // by UID: decisions that the model does not show yet
  // Shared by both threads.
  mutable Mutex mutex_;
  StopCondition request_;
  std::uint64_t requested_ GUARDED_BY(mutex_) = 0;
  std::uint64_t known_term_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ GUARDED_BY(mutex_);
};

}  // namespace carve::control
