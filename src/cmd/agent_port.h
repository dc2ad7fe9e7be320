#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "adapter/http/server.h"
#include "app/node/claim_holders.h"
#include "base/log.h"
#include "base/result.h"
#include "port/agent_api.h"

namespace carve::cmd {

/// The agent's port over plain HTTP, read-only and without authentication:
///   /metrics   for a collector   /v1/node   the node's view, as JSON, without its processes' names   /healthz
///   /usage, /graph, /version, /vcuda/POD-UID/CONTAINER/vcuda.config   as gpu-manager   /cgpu_km/…   as cGPU's module
/// `claims`: those that hold cards of this node; it outlives the server. `crashes`: agents of this pod that crashed
/// before this one.
///   errors  kInvalidArgument: `listen`; kUnavailable: the port is taken
[[nodiscard]] Result<std::unique_ptr<http::Server>> open_agent_port(const std::string& listen, AgentApi& agent,
                                                                    const node::ClaimHolders& claims,
                                                                    const std::string& node, std::uint64_t crashes,
                                                                    Log& log);

}  // namespace carve::cmd
