#pragma once

#include <string>

#include "port/agent_api.h"

namespace carve::api {

/// The agent's API from another process. One connection per call: the kernel then tells the agent who asks
/// now, not who asked first. `caller` is ignored.
class Client final : public AgentApi {
 public:
  explicit Client(std::string socket_path) : path_(std::move(socket_path)) {}
  Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                         const std::function<bool()>& gone) override;
  Result<void> join(const Caller& caller, const std::string& slice) override;
  Result<void> release(const Caller& caller, const std::string& slice, bool kill) override;
  Result<AgentView> view(const Caller& caller) override;

 private:
  Result<std::string> ask(const std::string& bytes, std::chrono::milliseconds timeout) const;
  std::string path_;
};

}  // namespace carve::api
