#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>

#include "app/control/leader_election.h"
#include "base/clock.h"
#include "base/log.h"
#include "port/kube_api.h"

namespace carve::control {

/// One replica's part in the election: looks at the Lease, takes it when it is free or has ended, renews it, gives it
/// back. Whoever writes asks leads_until() immediately before: a replica that was stopped for longer than the lease
/// finds out there, because its own clock went on.
class Leader {
 public:
  struct World {
    KubeApi& api;
    Clock& clock;
    Log& log;
    /// The highest epoch that stands in a record: a Lease that somebody deleted does not begin anew at 1.
    std::function<std::uint64_t()> known_epoch;
    /// Everything that was written before this term's lease was taken is known here. Asked until it says true; only
    /// then this replica leads. An error is logged and asked again. It waits for nobody: who asks renews the lease.
    std::function<Result<bool>(std::uint64_t term)> caught_up;
  };
  struct Names {
    std::string space = "carve-system";
    std::string lease = "carve-control";
    std::string identity;  // of this process: a restarted one is another
  };
  Leader(World world, Names names, LeaderElection::Timing timing = {});

  /// Until `stop`; then gives the lease back, once whoever was promised it has had the time.
  void run(const std::stop_token& stop);
  /// One look and the write that is due; how long to wait for the next one.
  Clock::Duration step();
  void give_back();

  /// This replica leads now and will at `deadline`: what is written until then is the leader's word. Any thread.
  [[nodiscard]] bool leads_until(Clock::Time deadline) const;
  /// Of this replica's leadership, from 1; 0: it does not lead. Any thread.
  [[nodiscard]] std::uint64_t epoch() const;
  /// Who leads, as last seen; empty: nobody. Any thread.
  [[nodiscard]] std::string holder() const;
  /// How often this replica began to lead.
  [[nodiscard]] std::uint64_t terms() const { return terms_; }

 private:
  Result<void> read_lease();
  Result<void> write(LeaderElection::Move move);
  void check_caught_up();
  [[nodiscard]] std::string path() const;

  World world_;
  const Names names_;
  const LeaderElection::Timing timing_;
  mutable std::mutex mutex_;
  LeaderElection leader_election_;
  bool caught_up_ = false;
  mutable Clock::Time promised_{};  // the latest deadline to which leads_until() said yes
  std::string lease_error_;  // of the lease
  std::string resync_error_;   // why it is not known what was written before
  std::atomic<std::uint64_t> terms_ = 0;
};

}  // namespace carve::control
