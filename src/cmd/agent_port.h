#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "adapter/http/server.h"
#include "base/log.h"
#include "base/result.h"
#include "port/agent_api.h"

namespace carve::cmd {

/// What a node's agent tells over plain HTTP, to whoever reaches it; nothing can be changed there:
///   /metrics   for a collector   /v1/node   its view, as JSON, without its processes' names   /healthz
/// `crashes`: of agents that this one follows.
///   errors  kInvalidArgument: `listen`; kUnavailable: the port is taken
[[nodiscard]] Result<std::unique_ptr<http::Server>> open_agent_port(const std::string& listen, AgentApi& agent,
                                                                    const std::string& node, std::uint64_t crashes,
                                                                    Log& log);

}  // namespace carve::cmd
