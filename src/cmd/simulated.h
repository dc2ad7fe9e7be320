#pragma once

#include <string>

#include "base/result.h"
#include "cmd/options.h"

namespace carve::cmd {

/// What `--simulate` sets up: a daemon to start, and the folder of its driver libraries. No other code in src/ knows
/// it.
struct SimulatedDriver {
  std::string program;      // carve-simd
  std::string socket;       // the daemon's socket
  std::string driver_root;  // folder of its client libraries, which every user can read
  std::string mount;        // the folder that a container needs to reach the daemon
};

/// Finds the daemon and its libraries next to this executable, and copies the libraries into the state folder.
///   errors  kNotFound names the file that is missing
[[nodiscard]] Result<SimulatedDriver> prepare_simulated(const HostOptions& options);

}  // namespace carve::cmd
