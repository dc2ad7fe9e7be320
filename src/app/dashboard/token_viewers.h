#pragma once

#include <map>
#include <set>
#include <string>

#include "app/dashboard/viewer.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/kube/access_review.h"
#include "port/kube_api.h"

namespace carve::dashboard {

/// What the bearers of tokens may see, by the API server's own answers: a TokenReview says whose token it is, and
/// SubjectAccessReviews say whether that user may list GPU objects (the cards) and pods, in all namespaces or in one.
/// Answers are kept for a short time, so a withdrawn permission takes effect within kKept. Safe from any thread.
class TokenViewers {
 public:
  TokenViewers(KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}

  /// As Admit.
  ///   errors  kUnauthenticated: no token, or not a valid one; kUnavailable and others of the API server
  ///   cost    at most one call for an unknown token; then one for the cards, and one per namespace for a user who may
  ///           not list the pods of all of them, each every kKept
  [[nodiscard]] Result<Viewer> admit(const std::string& token, const std::set<std::string>& namespaces)
      EXCLUDES(mutex_);

  static constexpr std::chrono::seconds kKept{30};
  static constexpr std::size_t kMostTokens = 256;  // known at the same time, valid or not

 private:
  /// What is known of one token.
  struct Known {
    Clock::Time until{};
    Error error;  // why it is not valid; only if `valid` is false
    bool valid = false;
    codec::KubeUser user;
    bool asked = false;  // whether the two below are known
    bool cards = false;
    bool all_pods = false;
    std::map<std::string, bool> pods;  // by namespace
  };
  [[nodiscard]] Known reviewed(const std::string& token) const;
  [[nodiscard]] Result<bool> may(const codec::KubeUser& user, const codec::KubeAction& action) const;
  /// Adds the permissions that are missing in `known`.
  [[nodiscard]] Result<void> complete(const std::set<std::string>& namespaces, Known* known) const;

  KubeApi& api_;
  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Known> tokens_ GUARDED_BY(mutex_);
};

}  // namespace carve::dashboard
