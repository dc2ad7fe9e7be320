#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/request.h"
#include "port/gpu.h"

namespace carve {

/// Who asks, by the kernel's word.
struct Caller {
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;  // primary and supplementary
  /// True: that process has ended, or cannot be told from one that got its number; what it left its connection to may
  /// ask on in its name, and `pid` is nobody's or somebody else's. Once true it stays true. Empty: it is not asked.
  std::function<bool()> gone = {};
};

/// "For ever", in a number that no clock overflows with.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 3650);

/// `carve run` and `carve slice create`.
struct AllocateRequest {
  Request request;
  std::string policy = "binpack";
  /// Wait at most so long until it fits; nullopt: do not wait. At most kLongestWait.
  std::optional<std::chrono::milliseconds> wait;
  /// True: it lives until it is released (a device for containers). False: it ends when its cgroup is empty.
  bool keep = false;
  std::string name;  // for people: what is run
};

struct GrantedCard {
  CardId card;
  std::string model;
  int minor = -1;
  Bytes memory;
  CoreShare compute;
};

/// What was decided, and what the client needs to enter the slice.
struct Grant {
  std::string slice;
  bool whole = false;
  std::vector<GrantedCard> cards;
  std::string slice_folder;    // host path of the folder with the socket; empty when whole
  std::string library_folder;  // host path of libcarve's two objects
  std::string runtime_folder;  // to be hidden inside
  std::string driver_version;
  DriverFiles driver;
  std::vector<int> hidden_minors;  // device nodes of the other cards
  std::string masking_socket;      // a socket inode to cover them with
  std::string card_files;          // folder of the slice's own nodes of its cards; empty: they are the host's
  std::string device;              // CDI name when it was published, else empty
};

/// One process that holds something of a card, or is a member of a slice.
struct ProcessView {
  std::int32_t pid = 0;
  std::string command;
  std::string card;              // UUID; empty: on no card
  Bytes memory;                  // by the driver's word
  std::uint32_t sm_percent = 0;  // by the driver's word
  bool registered = false;       // libcarve in it said hello
};

struct SliceCardView {
  std::string card;
  Bytes limit;
  Bytes used;       // by the driver's word, all processes
  Bytes announced;  // by the pages
  CoreShare compute;
  double delivered_percent = 0;  // GPU time of the last second, by the pages
};

struct SliceView {
  std::string id;
  std::string kind;  // run, device; of Kubernetes: pod, claim
  std::string name;
  std::string state;  // starting, running, ending, or what the watchdog did; ", card unhealthy" where it is
  std::uint32_t uid = 0;
  bool whole = false;
  ShareClass share = ShareClass::kBurst;
  PriorityClass priority = PriorityClass::kStandard;
  std::vector<SliceCardView> cards;
  std::vector<ProcessView> processes;
};

struct CardView {
  Card card;
  std::string pci_bus_id;
  Bytes set_aside;
  CoreShare guaranteed;
  bool exclusive = false;
  Bytes used;  // by the driver's word
  std::uint32_t utilization_percent = 0;
  std::uint32_t temperature_c = 0;
  std::uint32_t power_mw = 0;
  std::string remark;  // XIDs so far, and whether the driver tells them
  std::vector<ProcessView> foreign;  // on the card, in no slice: shown, never touched
};

/// Something a person should know of, newest last.
struct EventView {
  std::int64_t unix_ms = 0;
  std::string kind;  // breach-unregistered, breach-memory, breach-compute, worker-hanging, arbiter-away, …
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
  std::string state_folder;   // the journal's; of an agent of an earlier version empty, as the next one
  std::string device_folder;  // where container runtimes find slices
  std::string cgroup_error;  // empty: slices can have a cgroup
  std::string library_error;
  bool own_devices = false;        // the cards' device files belong to Carve
  std::uint32_t device_mode = 0;   // then: the mode that they have, with owner root
  std::uint32_t device_group = 0;  // and their group
  std::string device_error;        // and why one of them is not closed
  std::uint32_t waiting = 0;  // requests that wait for a place
  std::vector<CardView> cards;
  std::vector<SliceView> slices;
  std::vector<EventView> events;
};

/// What one node of a cluster said of itself, or why it said nothing.
struct NodeView {
  std::string node;
  std::optional<AgentView> view;
  std::string error;  // where there is no view
};

/// Everything the agent can be asked for. Implemented by the agent, and by its client over the socket (where
/// the kernel tells who asks and `caller` is ignored). Safe from any thread.
///   errors  kPermissionDenied: this user may not; kUnavailable: the agent, the arbiter or the driver is away
class AgentApi {
 public:
  virtual ~AgentApi() = default;
  /// Journaled before it returns. `gone` is asked while waiting: true ends the wait (kCancelled).
  ///   errors  kResourceExhausted: not now, with the numbers; kFailedPrecondition: never on this machine;
  ///           kInvalidArgument; kDeadlineExceeded: it did not fit while waiting
  virtual Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                                 const std::function<bool()>& gone) = 0;
  /// Moves the caller itself into the slice's cgroup: from here on the slice ends with it and its children.
  ///   errors  kNotFound: the slice, or the process that connected, is gone
  virtual Result<void> join(const Caller& caller, const std::string& slice) = 0;
  /// Ends a slice. With processes inside: `kill` ends them, else kFailedPrecondition.
  virtual Result<void> release(const Caller& caller, const std::string& slice, bool kill) = 0;
  virtual Result<AgentView> view(const Caller& caller) = 0;
};

}  // namespace carve
