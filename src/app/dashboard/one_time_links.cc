#include "app/dashboard/one_time_links.h"

#include <algorithm>

namespace carve::dashboard {
namespace {

/// Compares in a time that does not depend on where the texts differ.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (std::size_t at = 0; at < a.size(); ++at)
    different |= static_cast<unsigned>(static_cast<unsigned char>(a[at]) ^ static_cast<unsigned char>(b[at]));
  return different == 0;
}

}  // namespace

OneTimeLinks::OneTimeLinks(std::function<std::string()> secret, std::function<void(const std::string&)> shown)
    : secret_(std::move(secret)), shown_(std::move(shown)), key_(secret_()) {
  shown_(key_);
}

Result<std::string> OneTimeLinks::exchange(const std::string& key) {
  std::string token = secret_();
  const std::string next = secret_();
  {
    const MutexLock lock(mutex_);
    if (!same_secret(key, key_)) {
      return fail(Code::kUnauthenticated,
                  "this link was used already; the next one is where the dashboard was started");
    }
    key_ = next;
    tokens_.push_back(token);
    if (tokens_.size() > kMostTokens) tokens_.pop_front();
  }
  shown_(next);
  return token;
}

Result<Viewer> OneTimeLinks::admit(const std::string& token) const {
  const MutexLock lock(mutex_);
  const bool known =
      std::any_of(tokens_.begin(), tokens_.end(), [&](const std::string& one) { return same_secret(one, token); });
  if (!known) return fail(Code::kUnauthenticated, "open the link that `carve dashboard` prints; it works once");
  Viewer viewer;
  viewer.everything = viewer.cards = true;
  return viewer;
}

}  // namespace carve::dashboard
