#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "adapter/kubelet/kubelet_server.h"
#include "app/doors/waiting_dra.h"
#include "app/node/departure.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/units.h"
#include "port/kube_api.h"
#include "port/node_slices.h"

namespace carve::cmd {

/// What the kubelet's doors need besides the node itself.
struct DoorOptions {
  std::string node;  // the Node's name; also the pool's
  bool dra = true;
  bool slots = true;
  bool shares_cards = false;  // cards that slots use are offered to new claims, too
  std::string kubelet_dir =
      "/var/lib/kubelet";  // plugins, plugins_registry, pod-resources below it
  // Compiled into the kubelet: it does not follow its --root-dir. Another one for tests only.
  std::string device_plugins = "/var/lib/kubelet/device-plugins";
  std::string cdi_dir = "/var/run/cdi";      // as the runtime sees it
  std::vector<std::string> runtime_sockets;  // of the container runtime, as this process sees them
  std::vector<std::string> totals;           // extended resources to keep on the Node
  Bytes gpushare_unit = Bytes::gib(1);       // of aliyun.com/gpu-mem
  bool wakes_pods = true;  // by a touch of the Node when slices are free; false: control does
  // Told to end: how long it goes on for pods that were sent here before. 0: it ends at once, as one that is killed.
  Clock::Duration leaves_within = node::Departure::kMost;
  std::string unique;  // in the DRA sockets' names: the pod's UID; empty: "agent"
  // Descriptor of the keeper's line (keep_agent.h): by it come the kubelet's calls for slots. -1: by an own socket.
  int kept_by = -1;
  std::uint64_t crashes = 0;  // of agents that the keeper had before this one
};

/// Where the kubelet finds the slots' door.
[[nodiscard]] kubelet::SlotSocketOptions slot_socket(const DoorOptions& options);

/// "dra,slots", "dra,slots,shared", "dra" or "slots".
///   errors  kInvalidArgument
[[nodiscard]] Result<void> parse_doors(const std::string& words, DoorOptions* options);

/// Opens the doors and serves until `stop`, and where slots are served on until what was sent to this node is begun, at
/// most `leaves_within` longer. Everything it is given outlives the call.
///   errors  a socket or a folder that cannot be made
///   early   what was asked while another agent served this node: answered from now on, until the call returns
[[nodiscard]] Result<void> run_doors(const DoorOptions& options, NodeSlices& slices, KubeApi& api,
                                     Clock& clock, Log& log, const std::stop_token& stop,
                                     doors::WaitingDra* early = nullptr);

}  // namespace carve::cmd
