#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "app/control/claims/claim_rooms.h"
#include "app/control/leader/leader.h"
#include "app/control/state/claim_book.h"
#include "app/control/state/cluster_model.h"
#include "base/mutex.h"
#include "codec/kube/event.h"
#include "core/claims/claim_steps.h"

namespace carve::control {

/// Makes Elastic GPU's objects work: binds claims, provisions ElasticGPUs, reclaims them, and writes what the objects'
/// status shows. Every replica keeps the room of each ElasticGPU in its ledger, as a nominated reservation: for the
/// pods that use the claim, else for the claim. Only the leader writes objects, one single write after the other
/// (core/claims/claim_steps.h). Without such objects it does nothing. It works when an object or a pod that uses a
/// claim changes, and every kResync.
class ClaimController {
 public:
  static constexpr Clock::Duration kWrite = std::chrono::seconds(5);       // the longest time of one write
  static constexpr Clock::Duration kGap = std::chrono::milliseconds(100);  // between steps: each reads all pods
  static constexpr Clock::Duration kRetry = std::chrono::seconds(2);       // after a write that failed
  static constexpr Clock::Duration kAppears = std::chrono::seconds(10);    // until a created object is in the watch

  struct World {
    ClaimBook& book;
    ClusterModel& model;
    const Leader& leader;
    KubeApi& api;  // its calls end within kWrite
    Clock& clock;
    Log& log;
    std::function<const PolicyRow&(const PodEntry& pod, const std::string& node)> policy;
    std::function<void(codec::EventNote)> post_event;  // may be empty
  };
  explicit ClaimController(World world)
      : world_(std::move(world)), queue_({&world_.book.changes(), &world_.model.changes(), &world_.leader.changes()}) {}

  /// Until `stop`.
  void run(const std::stop_token& stop);
  /// Does what is due now.
  ///   out     when to call it again, unless something changes before
  Clock::Time step();
  /// Keeps the room of every ElasticGPU for its present users. The extender calls it when a pod takes a claim, before
  /// it looks for a node. Any thread.
  void reserve_rooms() EXCLUDES(rooms_mutex_);

  [[nodiscard]] ChangeQueue& changes() { return queue_; }

 private:
  using Place = std::optional<CardPlace>;
  [[nodiscard]] ClaimRooms wanted_rooms() REQUIRES(rooms_mutex_);
  void add_leaving(const std::string& uid, ClaimRoom* room) REQUIRES(rooms_mutex_);
  void read_users();
  [[nodiscard]] bool has_room(const Owner& owner, const Request& request, const CardPlace& place) const;
  [[nodiscard]] Result<Place> choose(const ElasticClaim& claim, const ElasticClass& by, const Request& request);
  [[nodiscard]] Result<Place> place_of_first_user(const ElasticClaim& claim) const;
  Result<void> write(const ClaimStep& step);
  Result<void> requeue_on(const std::string& node);
  Result<void> requeue_for_freed(const ClaimWorld& world);
  void say(const ElasticClaim& claim, const char* reason, std::string message, bool warning) const;

  const World world_;
  ChangeQueue queue_;
  Mutex rooms_mutex_;
  ClaimRooms rooms_ GUARDED_BY(rooms_mutex_);  // as kept in the model
  // By the claim's UID: chosen for an ElasticGPU that is not in the book yet, and until when.
  std::map<std::string, std::pair<ClaimRoom, Clock::Time>> chosen_ GUARDED_BY(rooms_mutex_);
  std::map<std::string, std::set<Owner>> left_ GUARDED_BY(rooms_mutex_);  // by the claim's UID: pods that used it
  std::set<std::string> freed_;  // UIDs of claims that a pod left: pods that wait for them are retried
  bool idle_ = false;
};

}  // namespace carve::control
