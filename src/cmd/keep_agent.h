#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/node_doors.h"
#include "port/kept_agent.h"

namespace carve::cmd {

/// Runs the keeper of an agent that serves the device plugin. The kubelet talks to this process, which only forwards
/// the calls. The agent is its child. Between two children the kubelet's calls wait. Without a keeper the kubelet would
/// fail the pod permanently. Returns the exit code when the keeper ends.
///   options  the socket of the device plugin
///   stop     a non-blocking descriptor with reads of multiples of 8 bytes (a signalfd, an eventfd): readable means
///            stop
///   errors   the system's, before any child was started
[[nodiscard]] Result<int> keep_agent(const DoorOptions& options, KeptAgent& agent, int stop, const Clock& clock,
                                     Log& log);

}  // namespace carve::cmd
