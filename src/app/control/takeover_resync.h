#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "app/control/cluster_model.h"
#include "port/kube_api.h"

namespace carve::control {

/// Whether the model knows what the leader before us wrote: watches run behind the server, by how much nobody says. So
/// all pods are listed, now, from the server itself, and each decision on the list must be seen in the model. In a
/// large cluster that list takes longer than a lease lasts: one thread finds out, and the one that renews only asks.
class TakeoverResync {
 public:
  /// A decision that the model does not show for so long after the server told of it is looked at again: its pod may
  /// have gone since, and then nobody will ever show it.
  static constexpr Clock::Duration kPatience = std::chrono::seconds(1);
  static constexpr Clock::Duration kPoll = std::chrono::milliseconds(50);

  TakeoverResync(KubeApi& api, const ClusterModel& model, Clock& clock) : api_(api), model_(model), clock_(clock) {}

  /// For Leader::World::caught_up: whether all is known; of a term that was not asked for before it is found out from
  /// now on. Waits for nobody. Any thread.
  ///   errors  the API server's, of the last round: another follows
  [[nodiscard]] Result<bool> operator()(std::uint64_t term);
  /// Finds out what is asked for, until `stop`.
  void run(const std::stop_token& stop);
  /// One round. One thread.
  ///   cost    once per term a list of all pods; a GET for each decision that stays out of sight, each kPatience
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

  KubeApi& api_;
  const ClusterModel& model_;
  Clock& clock_;
  // Of the thread that finds out.
  std::uint64_t listed_term_ = 0;  // the term of the list
  Clock::Time last_read_{};      // when the server last told
  std::map<std::string, Decision> pending_;  // by UID: not seen in the model yet
  // Between the two.
  mutable std::mutex mutex_;
  std::condition_variable_any request_;
  std::uint64_t requested_ = 0;
  std::uint64_t known_term_ = 0;
  std::optional<Error> error_;
};

}  // namespace carve::control
