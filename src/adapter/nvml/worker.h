#pragma once

#include <string>

namespace carve::nvml {

/// The worker process: loads the vendor's library, answers requests on `socket_fd` until the agent closes its end, and
/// sends XIDs on `events_fd`. Returns the exit code; the process must then end immediately with _exit(), because a
/// thread may be inside the vendor's library. The worker may hang in the driver forever; the agent then kills it.
int run_worker(int socket_fd, int events_fd, const std::string& driver_root);

}  // namespace carve::nvml
