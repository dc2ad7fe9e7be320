#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/control/state/change_queue.h"
#include "base/log.h"
#include "base/mutex.h"
#include "codec/dialects/dialect.h"
#include "core/claims/claim_steps.h"
#include "port/kube_api.h"

namespace carve::control {

/// The cards of ElasticGPUs, by the names of the ElasticGPUs.
using GpuCards = std::map<std::string, std::vector<CardId>>;

/// The Elastic GPU objects of the cluster as the watches show them, and the pods that use each claim. A pod uses a
/// claim from its first question about it until it has ended or is deleted; a class states how many pods may use a
/// claim at a time. Safe from any thread; three threads feed the sinks.
class ClaimBook {
 public:
  ClaimBook(codec::DialectSettings settings, Log& log) : settings_(settings), log_(log) {}

  [[nodiscard]] KubeSink classes();
  [[nodiscard]] KubeSink gpus();
  [[nodiscard]] KubeSink claims();
  /// Each kind was listed, or the API server does not have it.
  [[nodiscard]] bool answered() const { return answered_[0] && answered_[1] && answered_[2]; }
  [[nodiscard]] const ChangeFeed& changes() const { return changes_; }

  /// No object exists.
  [[nodiscard]] bool empty() const;
  /// The objects, without the functions. Cost: a copy.
  [[nodiscard]] ClaimWorld world() const;

  /// What the pod gets of the claim: the claim's size, and the cards where it is bound. Sets nothing aside.
  ///   errors  kFailedPrecondition: the claim does not exist, is not bound, is lost, or is used by other pods; the text
  ///           is for users
  [[nodiscard]] Result<Request> part_for(const std::string& namespace_name, const std::string& claim,
                                         const std::string& pod) const;
  /// The same, and from now on the pod uses the claim.
  Result<Request> take(const std::string& namespace_name, const std::string& claim, const std::string& pod);

  /// The UUIDs of the cards, which an ElasticGPU may name by an index.
  void know_cards(GpuCards cards);

  using Users = std::map<std::string, std::set<std::string>>;  // by the claim's UID: UIDs of pods
  [[nodiscard]] Users users() const;
  /// Replaces the users: `all` use claims, and other pods do not, except those that took one after `before` was read.
  void keep_users(const Users& before, const Users& all);

 private:
  void put_class(const std::string& text);
  void put_gpu(const std::string& text);
  void put_claim(const std::string& text);
  [[nodiscard]] Result<Request> part_locked(const std::string& namespace_name, const std::string& claim,
                                            const std::string& pod, std::string* uid) const REQUIRES(mutex_);
  void unreadable(const char* kind, const Error& error);

  const codec::DialectSettings settings_;
  Log& log_;
  ChangeFeed changes_;
  std::array<std::atomic<bool>, 3> answered_{};
  mutable Mutex mutex_;
  std::map<std::string, ElasticClass> classes_ GUARDED_BY(mutex_);
  std::map<std::string, ElasticGpu> gpus_ GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, ElasticClaim> claims_ GUARDED_BY(mutex_);
  GpuCards cards_ GUARDED_BY(mutex_);
  Users users_ GUARDED_BY(mutex_);
};

/// The requests of a pod: by resource names, and by its claims.
class PodRequests {
 public:
  PodRequests(codec::DialectSettings settings = {}, ClaimBook* claims = nullptr)  // NOLINT: settings are requests too
      : settings_(settings), claims_(claims) {}
  /// As codec::requests_by_slots, with the containers that use claims.
  ///   errors  kInvalidArgument: as there; kFailedPrecondition: a claim cannot be used now
  [[nodiscard]] Result<std::vector<PartRequest>> of(const codec::PodAsk& pod) const { return parts(pod, false); }
  /// The same, and from now on the pod uses its claims.
  [[nodiscard]] Result<std::vector<PartRequest>> take(const codec::PodAsk& pod) const { return parts(pod, true); }
  /// A container of the pod uses a claim.
  [[nodiscard]] bool uses_claims(const codec::PodAsk& pod) const;
  [[nodiscard]] const codec::DialectSettings& settings() const { return settings_; }

 private:
  [[nodiscard]] Result<std::vector<PartRequest>> parts(const codec::PodAsk& pod, bool take) const;

  codec::DialectSettings settings_;
  ClaimBook* claims_;  // nullptr: claims are not read
};

}  // namespace carve::control
