#pragma once

#include <string>

namespace carve::nvml {

/// The worker process: loads the vendor's library, answers requests on `socket_fd` until the other end closes, and
/// tells XIDs on `events_fd`. When it returns the process has to end at once (_exit): a thread may be in the vendor's
/// library. It may hang in the driver for ever: whoever asked it then kills it. Returns the exit code.
int run_worker(int socket_fd, int events_fd, const std::string& driver_root);

}  // namespace carve::nvml
