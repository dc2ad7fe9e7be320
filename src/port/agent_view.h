#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/model/card.h"
#include "core/model/classes.h"
#include "core/model/share_policy.h"
#include "port/gpu.h"
#include "port/slice_counters.h"

// What an agent reports about its node.
namespace carve {

/// The amount; nullopt if the driver does not report it (Bytes::max()).
[[nodiscard]] inline std::optional<Bytes> if_reported(Bytes bytes) {
  return bytes == Bytes::max() ? std::nullopt : std::optional(bytes);
}

/// One process that uses a card or is a member of a slice.
struct ProcessView {
  std::int32_t pid = 0;
  std::string command;
  std::string card;              // UUID; empty: on no card
  Bytes memory;                  // as the driver reports it
  std::uint32_t sm_percent = 0;  // as the driver reports it
  bool registered = false;       // libcarve in the process said hello
};

struct SliceCardView {
  std::string card;
  Bytes limit;
  Bytes used;       // as the driver reports it, all processes
  Bytes announced;  // from the pages
  CoreShare compute;
  double delivered_percent = 0;  // GPU time of the last second, from the pages
  std::uint32_t rescues = 0;     // leases out of turn, since the arbiter started or the slice was created
  std::uint64_t busy_ns = 0;     // GPU time so far, from the pages; begins again when the pages are created again
  std::int64_t busy_at_ns = 0;   // the time since boot at which it was read; not sent to clients
  std::optional<SliceCounters> counters = std::nullopt;  // nullopt: not reported
};

struct SliceView {
  std::string id;
  std::string kind;  // run, device; on Kubernetes: pod, claim
  std::string name;
  std::string owner = {};  // UID of the pod or claim; empty: a local slice, or an agent of an earlier version
  // starting, running, ending, or the action of the watchdog; idle: of an init container of which no process uses the
  // card (not yet, or not any more). ", card unhealthy" may follow.
  std::string state;
  std::uint32_t uid = 0;
  bool whole = false;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  CoreShare ceiling = CoreShare::whole();  // see Request::ceiling
  std::vector<SliceCardView> cards;
  std::vector<ProcessView> processes;
};

struct CardView {
  Card card;
  std::string pci_bus_id;
  Bytes set_aside;
  CoreShare guaranteed;
  bool exclusive = false;
  Bytes used;  // as the driver reports it
  std::uint32_t utilization_percent = 0;
  std::uint32_t temperature_c = 0;
  std::uint32_t power_mw = 0;
  std::uint32_t sm_clock_mhz = 0;  // 0: not reported, as the next one
  std::uint32_t memory_clock_mhz = 0;
  std::optional<std::uint32_t> memory_busy_percent;  // see GpuUsage, as the next two
  std::optional<std::uint64_t> energy_mj;
  CardActivity activity;
  std::string remark;  // XIDs so far, and whether the driver reports XIDs for the card
  std::map<std::uint32_t, std::uint64_t> xids;  // how often the driver reported each code since the agent started
  std::uint32_t last_xid = 0;                   // 0: none yet
  std::vector<ProcessView> foreign;  // on the card, but in no slice: shown, never touched
};

/// An event that an administrator should know of. Lists have the newest event last.
struct EventView {
  std::int64_t unix_ms = 0;
  std::string kind;  // breach-unregistered, breach-memory, breach-compute, rescues-repeat, arbiter-away, …
  std::string slice;
  std::string text;
};

/// Everything that inspect, top and doctor show.
struct AgentView {
  std::string version;
  std::uint32_t page_abi = 0;
  std::string driver_version;
  std::string cuda_version;
  std::string gpu_state;
  std::string gpu_reason;
  std::string arbiter_state;  // ok, away, stopped
  std::string arbiter_reason;
  std::string journal_error;  // empty: the last write succeeded
  std::string library_folder;
  std::string state_folder;   // of the journal; empty, like the next field, when the agent has an earlier version
  std::string device_folder;  // where container runtimes look up slices
  std::string cgroup_error;  // empty: slices can have a cgroup
  std::string library_error;
  bool own_devices = false;        // the cards' device files belong to Carve
  std::uint32_t device_mode = 0;   // if own_devices: the mode of the files; their owner is root
  std::uint32_t device_group = 0;  // if own_devices: their group
  std::string device_error;        // why a file cannot be closed; empty: all are closed
  SharePolicies share_policies = {};  // of slices of class `node`; not sent to clients
  std::uint32_t waiting = 0;          // requests that wait for capacity
  std::vector<CardView> cards;
  std::vector<SliceView> slices;
  std::vector<EventView> events;
};

/// The view of one node of a cluster, or why there is none.
struct NodeView {
  std::string node;
  std::optional<AgentView> view;
  std::string error;  // empty when there is a view
};

}  // namespace carve
