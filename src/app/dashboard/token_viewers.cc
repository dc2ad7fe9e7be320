#include "app/dashboard/token_viewers.h"

#include <algorithm>
#include <utility>

namespace carve::dashboard {
namespace {

constexpr std::size_t kLongestToken = 16UL << 10;

}  // namespace

TokenViewers::Known TokenViewers::reviewed(const std::string& token) const {
  Known known;
  known.until = clock_.now() + kKept;
  const auto text = api_.create(codec::kTokenReviews, codec::token_review(token));
  const auto user = text ? codec::parse_token_review(*text) : Result<codec::KubeUser>(tl::unexpected(text.error()));
  known.valid = user.has_value();
  if (user)
    known.user = *user;
  else
    known.error = user.error();
  return known;
}

Result<bool> TokenViewers::may(const codec::KubeUser& user, const codec::KubeAction& action) const {
  CARVE_TRY(const auto text, api_.create(codec::kAccessReviews, codec::access_review(user, action)));
  return codec::parse_access_review(text);
}

Result<void> TokenViewers::complete(const std::set<std::string>& namespaces, Known* known) const {
  if (!known->asked) {
    CARVE_TRY(known->cards, may(known->user, {"list", "elasticgpu.io", "gpus", ""}));
    CARVE_TRY(known->all_pods, may(known->user, {"list", "", "pods", ""}));
    known->asked = true;
  }
  if (known->all_pods) return {};
  for (const auto& name : namespaces) {
    if (known->pods.count(name) != 0) continue;
    CARVE_TRY(known->pods[name], may(known->user, {"list", "", "pods", name}));
  }
  return {};
}

Result<Viewer> TokenViewers::admit(const std::string& token, const std::set<std::string>& namespaces) {
  if (token.empty()) return fail(Code::kUnauthenticated, "a bearer token of the API server is required");
  if (token.size() > kLongestToken) return fail(Code::kUnauthenticated, "the token is longer than 16 KiB");
  Known known;
  {
    const MutexLock lock(mutex_);
    const auto found = tokens_.find(token);
    if (found != tokens_.end() && found->second.until > clock_.now()) known = found->second;
  }
  // The API server is asked without the lock: two callers with the same new token ask twice.
  if (known.until == Clock::Time{}) known = reviewed(token);
  // A failure of the API server is not kept, because the next call may succeed.
  if (!known.valid && known.error.code != Code::kUnauthenticated)
    return fail_in("the token cannot be verified", known.error);
  if (known.valid) {
    if (auto done = complete(namespaces, &known); !done) return fail_in("permissions cannot be verified", done.error());
  }
  {
    const MutexLock lock(mutex_);
    std::erase_if(tokens_, [now = clock_.now()](const auto& row) { return row.second.until <= now; });
    if (tokens_.size() >= kMostTokens && tokens_.count(token) == 0) tokens_.erase(tokens_.begin());
    tokens_[token] = known;
  }
  if (!known.valid) return tl::unexpected(known.error);
  Viewer viewer;
  viewer.cards = known.cards;
  viewer.everything = known.cards && known.all_pods;
  for (const auto& name : namespaces) {
    const auto found = known.pods.find(name);
    if (known.all_pods || (found != known.pods.end() && found->second)) viewer.namespaces.insert(name);
  }
  return viewer;
}

}  // namespace carve::dashboard
