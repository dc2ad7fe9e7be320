#pragma once

#include <stop_token>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace carve::arbiter {

struct Options {
  std::string runtime_folder = "/run/carve";  // contains the pages, the sockets and the slices
  std::string trace_path;                     // empty, or the prefix of the names of the trace files, one file per card
  std::string groups_folder, groups_path;     // of slices with cgroups of their own (own_groups.h); or empty
};

/// Runs the arbiter of this node until `stop`. The arbiter creates pages when the agent requests them, sends them to
/// the slices' processes, and grants the cards' time. It takes over the state of an earlier arbiter: grant pages from
/// their tmpfs, account pages and sockets from the agent, or account pages from the mappings of living clients.
///   errors  kAlreadyExists: another arbiter runs on this folder; kPermissionDenied: no permission to mount
Result<void> run(const Options& options, Log& log, const std::stop_token& stop);

}  // namespace carve::arbiter
