#pragma once

#include <chrono>
#include <string>

#include "base/fd.h"
#include "port/agent_api.h"

namespace carve::api {

/// How long a command waits for an agent that is being restarted. A supervisor restarts it within 5 s.
inline constexpr std::chrono::milliseconds kAgentsRestart{6'000};

/// The agent's API from another process. Each call has its own connection, so that the peer credentials are those of
/// the process that makes this call. `caller` is ignored.
class Client final : public AgentApi {
 public:
  /// `patience`: how long to wait while no agent listens but its socket, or the lock file of `carve up` next to it,
  /// shows that one is expected. A request that may have reached an agent is sent once; only view() is sent again.
  explicit Client(std::string socket_path, std::chrono::milliseconds patience = {})
      : path_(std::move(socket_path)), patience_(patience) {}
  Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                         const std::function<bool()>& gone) override;
  Result<void> join(const Caller& caller, const std::string& slice) override;
  Result<void> release(const Caller& caller, const std::string& slice, bool kill) override;
  Result<AgentView> view(const Caller& caller) override;
  Result<HistoryAnswer> history(const Caller& caller, const HistoryQuery& query) override;

 private:
  [[nodiscard]] Result<Fd> connect() const;
  [[nodiscard]] bool may_come_back() const;
  Result<std::string> ask(const std::string& bytes, std::chrono::milliseconds timeout,
                                        bool again = false) const;
  std::string path_;
  std::chrono::milliseconds patience_;
};

}  // namespace carve::api
