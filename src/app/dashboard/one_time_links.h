#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>

#include "app/dashboard/viewer.h"
#include "base/mutex.h"
#include "base/result.h"

namespace carve::dashboard {

/// The access to a dashboard that one person starts for himself on a loopback address: a link with a key that works
/// once. The key is exchanged for a token, which a browser tab keeps. Safe from any thread.
class OneTimeLinks {
 public:
  ///   in   secret: at least 128 random bits as text, another one with each call
  ///        shown: called with the key of each new link, at first by the constructor
  OneTimeLinks(std::function<std::string()> secret, std::function<void(const std::string& key)> shown);

  /// The token for a key. The next link is shown.
  ///   errors  kUnauthenticated: the key was used already, or never existed
  [[nodiscard]] Result<std::string> exchange(const std::string& key) EXCLUDES(mutex_);
  /// A token sees everything that this program reads.
  ///   errors  kUnauthenticated
  [[nodiscard]] Result<Viewer> admit(const std::string& token) const EXCLUDES(mutex_);

  /// Tokens at the same time; the oldest ends first.
  static constexpr std::size_t kMostTokens = 64;

 private:
  const std::function<std::string()> secret_;
  const std::function<void(const std::string&)> shown_;
  mutable Mutex mutex_;
  std::string key_ GUARDED_BY(mutex_);
  std::deque<std::string> tokens_ GUARDED_BY(mutex_);
};

}  // namespace carve::dashboard
