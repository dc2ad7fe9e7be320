#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "app/control/leader/leader_election.h"
#include "app/control/state/change_queue.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "port/kube_api.h"

namespace carve::control {

/// One replica's part in the election: it reads the coordination.k8s.io Lease, takes it when it is free or expired,
/// renews it and releases it. Code that writes calls leads_until() immediately before the write: a replica that was
/// stopped for longer than the Lease lasts detects it there, because its own clock continued.
class Leader {
 public:
  struct World {
    KubeApi& api;
    Clock& clock;
    Log& log;
    /// The highest epoch that may have been used: after a Lease was deleted, epochs must not start again at 1.
    std::function<std::uint64_t()> known_epoch;
    /// Returns true once this replica knows everything that was written before this term's Lease was taken. It is
    /// called until it returns true; only then this replica leads. An error is logged, and the call is repeated. It
    /// must not block: the calling thread renews the Lease.
    std::function<Result<bool>(std::uint64_t term)> caught_up;
  };
  struct Names {
    std::string namespace_name = "carve-system";
    std::string lease = "carve-control";
    std::string identity;  // of this process; a restarted process has a different one
  };
  Leader(World world, Names names, LeaderElection::Timing timing = {});

  /// Runs until `stop`, then waits until the last deadline that leads_until() confirmed, and releases the Lease.
  void run(const std::stop_token& stop);
  /// Reads the Lease and makes the write that is due. Returns the time until the next step.
  Clock::Duration step();
  void give_back();

  /// This replica leads now and will lead at `deadline`: writes that end before it are the leader's. Any thread.
  [[nodiscard]] bool leads_until(Clock::Time deadline) const;
  /// The epoch of this replica's term, from 1; 0: it does not lead. Any thread.
  [[nodiscard]] std::uint64_t epoch() const;
  /// The leader's identity as last read; empty: there is none. Any thread.
  [[nodiscard]] std::string holder() const;
  /// Publishes once when this replica begins to lead: work that waits for the leader may start.
  [[nodiscard]] const ChangeFeed& changes() const { return changes_; }
  /// How often this replica took the Lease.
  [[nodiscard]] std::uint64_t terms() const { return terms_; }

 private:
  Result<void> read_lease();
  Result<void> write(LeaderElection::Move move);
  void begin_term() REQUIRES(mutex_);
  void check_caught_up();
  [[nodiscard]] std::string path() const;

  World world_;
  const Names names_;
  const LeaderElection::Timing timing_;
  ChangeFeed changes_;
  mutable Mutex mutex_;
  LeaderElection leader_election_ GUARDED_BY(mutex_);
  bool caught_up_ GUARDED_BY(mutex_) = false;
  mutable Clock::Time promised_ GUARDED_BY(mutex_){};  // the latest deadline that leads_until() confirmed
  // Used by the thread of run() only.
  std::string lease_error_;         // the last error of reading or writing the Lease; logged once
  std::string resync_error_;        // the last error of World::caught_up; logged once
  std::atomic<std::uint64_t> terms_ = 0;
};

}  // namespace carve::control
