#pragma once

#include <stop_token>
#include <string>

#include "base/log.h"
#include "base/result.h"

namespace carve::arbiter {

struct Options {
  std::string runtime_folder = "/run/carve";  // pages, sockets and slices live below
  std::string trace_path;                     // empty, or the beginning of the name of a trace file per card
  std::string groups_folder, groups_path;     // of slices with cgroups of their own (own_groups.h); or empty
};

/// The arbiter of this node, until `stop`: makes pages at the agent's word, hands them to the slices' processes, and
/// rules over the cards' time. Takes over what an arbiter before it left: grant pages from their tmpfs, account pages
/// and sockets from the agent, or account pages from the mappings of living clients.
///   errors  kAlreadyExists: another one runs on this folder; kPermissionDenied: needs to mount
Result<void> run(const Options& options, Log& log, const std::stop_token& stop);

}  // namespace carve::arbiter
