#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "port/agent_api.h"

// Who is at the other end of a unix socket, by the kernel's word at the time of its connect().
namespace carve::api {

/// Credentials, groups, and a hold on the process (a descriptor, as long as a copy of the answer lives), so that its
/// number cannot come to mean another one unnoticed. Ask soon after accept(): see hold_of().
///   errors  the system's reason; kResourceExhausted: no descriptor for the hold
[[nodiscard]] Result<Caller> peer_of(int fd);

/// Caller::gone of a process that has this number now, for kernels before 6.5, which do not give the peer's own: gone
/// as well when it does not run as `uid`, for then the number is another process's already.
[[nodiscard]] Result<std::function<bool()>> hold_of(std::int32_t pid, std::uint32_t uid);

}  // namespace carve::api
