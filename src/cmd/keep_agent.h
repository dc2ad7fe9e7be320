#pragma once

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/node_doors.h"
#include "port/kept_agent.h"

namespace carve::cmd {

/// The keeper of an agent that serves slots: this process is the one that the kubelet talks to, and does nothing else;
/// the agent is its child. Between two children what the kubelet asks waits, where without a keeper it would refuse
/// the pod for good. Returns the exit code when all is over.
///   options  where the slots' door is
///   stop     readable, of whole words of eight bytes, not blocking: told to end (a signalfd, an eventfd)
///   errors   the system's, before anything was started
[[nodiscard]] Result<int> keep_agent(const DoorOptions& options, KeptAgent& agent, int stop, const Clock& clock,
                                     Log& log);

}  // namespace carve::cmd
