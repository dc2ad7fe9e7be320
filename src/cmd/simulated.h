#pragma once

#include <string>

#include "base/result.h"
#include "cmd/options.h"

namespace carve::cmd {

/// What `--simulate` comes to: a daemon to start, and a driver folder to look into. Nothing else in src/
/// knows.
struct SimulatedDriver {
  std::string program;      // carve-simd
  std::string socket;       // where it listens
  std::string driver_root;  // its client libraries, copied to where every user can read them
  std::string mount;        // what a container needs to reach it
};

/// Finds the daemon and its libraries beside this executable and copies the latter into the state folder.
///   errors  kNotFound names the file that is missing
[[nodiscard]] Result<SimulatedDriver> prepare_simulated(const HostOptions& options);

}  // namespace carve::cmd
