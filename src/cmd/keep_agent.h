#pragma once

#include <functional>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "cmd/node_plugins.h"
#include "port/kept_agent.h"

namespace carve::cmd {

/// Runs the keeper of an agent that serves the device plugin. The kubelet talks to this process, which only forwards
/// the calls. The agent is its child. Between two children the kubelet's calls wait. Without a keeper the kubelet would
/// fail the pod permanently. Returns the exit code when the keeper ends.
/// The code is kSettingsChanged if the settings changed and the node no longer serves slots.
///   options  the socket of the device plugin
///   stays    called after a change of settings: whether the node still serves slots
///   stop     a non-blocking descriptor with reads of multiples of 8 bytes (a signalfd, an eventfd): readable means
///            stop
///   errors   the system's, before any child was started
[[nodiscard]] Result<int> keep_agent(const PluginOptions& options, KeptAgent& agent, std::function<bool()> stays,
                                     int stop, const Clock& clock, Log& log);

}  // namespace carve::cmd
