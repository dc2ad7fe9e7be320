#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "adapter/kube/access.h"
#include "adapter/kube/channel.h"
#include "adapter/kube/kube_client.h"
#include "base/clock.h"
#include "base/result.h"

namespace carve::kube {

/// Requests and answers with whatever connections and credentials they need. Safe from any thread.
class Caller {
 public:
  Caller(std::vector<std::string> kubeconfigs, Clock& clock, const Limits& limits);

  /// Reads the credentials for the first time, so that a wrong file shows at the start.
  [[nodiscard]] Result<void> check();
  /// One request; repeated while the server asks for it (Retry-After) and the time lasts, and once when
  /// credentials were renewed or a GET met a connection that had ended.
  ///   errors  as KubeApi; 410 is kOutOfRange
  [[nodiscard]] Result<std::string> call(HttpRequest request, std::chrono::milliseconds limit,
                                         const std::stop_token& stop = {});
  /// Begins a GET whose answer is read with read_some().
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
  std::mutex mutex_;
  std::vector<Idle> idle_;
  std::shared_ptr<TlsIdentity> identity_;
  std::uint64_t identity_of_ = 0;
  Clock::Time next_{};  // of the rate: when the next request is due if none were saved up
};

}  // namespace carve::kube
