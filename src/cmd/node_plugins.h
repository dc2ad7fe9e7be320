#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "adapter/kubelet/kubelet_server.h"
#include "app/node/claim_holders.h"
#include "app/node/departure.h"
#include "app/plugins/waiting_dra.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/units.h"
#include "codec/dialects/dialect.h"
#include "port/kube_api.h"
#include "port/node_slices.h"

namespace carve::cmd {

/// The options of the kubelet plugins, the DRA driver and the device plugin.
struct PluginOptions {
  std::string node;  // the Node's name; also the pool's
  bool dra = true;
  bool slots = true;
  bool shares_cards = false;  // cards that slots use are also offered to new claims
  std::string kubelet_dir =
      "/var/lib/kubelet";  // plugins, plugins_registry, pod-resources below it
  // Compiled into the kubelet, independent of its --root-dir. Only tests set another folder.
  std::string device_plugins = "/var/lib/kubelet/device-plugins";
  std::string cdi_dir = "/var/run/cdi";      // the runtime's path
  std::vector<std::string> runtime_sockets;  // of the container runtime, as paths of this process
  std::vector<std::string> totals;           // extended resources to keep on the Node
  codec::DialectSettings dialects = {};
  SharePolicies shares = {};  // of a Node that states none itself
  bool wakes_pods = true;  // updates the Node when slices become free, so that pods are requeued; false: control does
  // After a stop signal: how long it serves pods that were bound here before. 0: it ends immediately, as if killed.
  Clock::Duration leaves_within = node::Departure::kMost;
  std::string unique;  // in the DRA sockets' names: the pod's UID; empty: "agent"
  // Descriptor of the socket to the keeper (keep_agent.h), which carries the device plugin's calls. -1: the agent has
  // its own socket for them.
  int kept_by = -1;
  // After a stop signal: whether this agent starts again at once, because its settings changed. Then it ends as if
  // killed: pods that were bound here wait for the next agent. Unset: it does not.
  std::function<bool()> starts_again = {};
  std::uint64_t crashes = 0;  // agents of this keeper that crashed before this one
  node::ClaimHolders* claims = nullptr;  // for the metrics: set to the claims that hold cards; it outlives the plugins
};

/// The socket of the device plugin.
[[nodiscard]] kubelet::SlotSocketOptions slot_socket(const PluginOptions& options);

/// "dra,slots", "dra,slots,shared", "dra" or "slots".
///   errors  kInvalidArgument
[[nodiscard]] Result<void> parse_plugins(const std::string& words, PluginOptions* options);

/// Opens the kubelet plugins and serves until `stop`. With the device plugin it then serves until the pods that were
/// bound to this node have started, at most `leaves_within`. All arguments outlive the call.
///   errors  a socket or a folder that cannot be created
///   early   the calls that arrived while another agent served this node: answered from now on, until the call returns
[[nodiscard]] Result<void> run_plugins(const PluginOptions& options, NodeSlices& slices, KubeApi& api,
                                     Clock& clock, Log& log, const std::stop_token& stop,
                                     plugins::WaitingDra* early = nullptr);

}  // namespace carve::cmd
