#pragma once

#include <string>

namespace carve::nvml {

/// The worker process: loads the vendor's library and answers requests on `socket_fd` until the other end
/// closes. It may hang in the driver for ever: whoever asked it then kills it. Returns the exit code.
int run_worker(int socket_fd, const std::string& driver_root);

}  // namespace carve::nvml
