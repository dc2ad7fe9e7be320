#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace carve::control {

/// Forwards kube-scheduler's calls about a pod's nodes to the replica that leads. Only the leader knows the room that
/// is set aside for Bindings in progress, and all pods that were sent to a node. A follower chooses by an older state
/// of the cluster, and in a burst the leader refuses many of its Bindings. kube-scheduler keeps its connection, so it
/// may call a follower for as long as that replica lives. Safe from any thread.
class LeaderRoute {
 public:
  struct World {
    std::function<bool()> leads;
    std::function<std::string()> holder;  // the leader's identity from the Lease; empty: no leader
    /// Sends the call to that path of the replica at that address. The receiver must answer itself and must not forward
    /// the call. Returns before kube-scheduler's own limit of a call, with time left for an answer by this replica.
    std::function<Result<std::string>(const std::string& address, std::string_view path, std::string_view call)> ask;
    const Clock& clock;
  };
  /// The time for which a leader that did not answer is not called again. A leader that hangs loses the Lease in 10 s;
  /// until then kube-scheduler must not wait for it at each call.
  static constexpr Clock::Duration kAvoid = std::chrono::seconds(2);
  explicit LeaderRoute(World world) : world_(std::move(world)) {}

  using Answer = std::function<std::string(std::string_view call)>;
  /// The leader's answer, which it gives at `path`. This replica's own answer if it leads, if no replica leads, if the
  /// leader is not reachable, or if the leader does not know the path (an older release).
  ///   cost    on a follower, one call to the leader
  [[nodiscard]] std::string answer(std::string_view path, std::string_view call, const Answer& own) const;
  /// answer() would call the leader now: it may block.
  [[nodiscard]] bool forwards() const { return !leader().empty(); }
  /// Calls that the leader did not answer.
  [[nodiscard]] std::uint64_t unanswered() const { return unanswered_; }

 private:
  /// The leader's address; empty: this replica answers.
  [[nodiscard]] std::string leader() const;

  World world_;
  mutable std::atomic<Clock::Duration::rep> avoid_until_ = 0;  // 0: the leader has answered every call
  mutable std::atomic<std::uint64_t> unanswered_ = 0;
};

}  // namespace carve::control
