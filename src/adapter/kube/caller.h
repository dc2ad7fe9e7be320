#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "adapter/kube/access.h"
#include "adapter/kube/channel.h"
#include "adapter/kube/kube_client.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

namespace carve::kube {

/// Sends requests; manages the connections and credentials that they need. Safe from any thread.
class Caller {
 public:
  Caller(std::vector<std::string> kubeconfigs, Clock& clock, const Limits& limits, std::string context = {});

  /// Reads the credentials for the first time, so that an invalid file is reported at the start.
  [[nodiscard]] Result<void> check();
  /// Sends one request. Repeats it while the server requests that (Retry-After) and time is left; once after the
  /// credentials were renewed; and a GET once when its connection had ended.
  ///   errors  those of KubeApi; 410 is kOutOfRange
  [[nodiscard]] Result<std::string> call(HttpRequest request, std::chrono::milliseconds limit,
                                         const std::stop_token& stop = {});
  /// Begins a GET; the caller reads the answer with read_some().
  [[nodiscard]] Result<std::unique_ptr<Channel>> stream(HttpRequest request, const std::stop_token& stop);
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] Clock& clock() { return clock_; }

 private:
  struct Idle {
    std::unique_ptr<Channel> channel;
    std::uint64_t generation;
    Clock::Time since;
  };

  Result<std::shared_ptr<TlsIdentity>> identity(const Credentials& credentials);
  std::unique_ptr<Channel> take_idle(std::uint64_t generation);
  void keep_idle(std::unique_ptr<Channel> channel, std::uint64_t generation);
  Result<Credentials> credentials(Patience* patience);
  Result<HttpResponse> once(HttpRequest& request, Patience* patience, std::uint64_t* generation);
  /// Waits until the client's rate allows another request.
  Result<void> pace(const Patience& patience);

  Access access_;
  Clock& clock_;
  const Limits limits_;
  Mutex mutex_;
  std::vector<Idle> idle_ GUARDED_BY(mutex_);
  std::shared_ptr<TlsIdentity> identity_ GUARDED_BY(mutex_);
  std::uint64_t identity_of_ GUARDED_BY(mutex_) = 0;
  Clock::Time next_ GUARDED_BY(mutex_){};  // for the rate limit: when the next request would be due without a burst
};

}  // namespace carve::kube
