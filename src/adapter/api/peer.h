#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "port/agent_api.h"

// The process at the other end of a Unix socket, as the kernel recorded it at connect().
namespace carve::api {

/// Credentials, groups, and a pidfd of the process, which stays open as long as a copy of the result exists, so that
/// the caller detects when the PID is reused. Call it soon after accept(): see hold_of().
///   errors  the system's; kResourceExhausted: no file descriptor for the pidfd
[[nodiscard]] Result<Caller> peer_of(int fd);

/// Caller::gone for the process that has this PID now, for kernels before 6.5, which have no SO_PEERPIDFD. The result
/// is also "gone" when the process does not run as `uid`, because then the PID already belongs to another process.
[[nodiscard]] Result<std::function<bool()>> hold_of(std::int32_t pid, std::uint32_t uid);

}  // namespace carve::api
