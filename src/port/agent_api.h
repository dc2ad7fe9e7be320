#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/history/history.h"
#include "core/model/request.h"
#include "port/agent_view.h"
#include "port/gpu.h"

namespace carve {

/// The calling process, as the kernel identifies it.
struct Caller {
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::vector<std::uint32_t> gids;  // primary and supplementary
  /// True: the process has ended, or cannot be distinguished from a process that reused its PID. A process that
  /// inherited the connection may continue to call in its name, and `pid` is invalid or belongs to another process.
  /// Once true it stays true. An empty function: not checked.
  std::function<bool()> gone = {};
};

/// Unlimited, as a number that overflows no clock.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 3650);

/// The request of `carve run` and `carve slice create`.
struct AllocateRequest {
  Request request;
  std::string policy = "binpack";
  /// The longest wait until the request fits; nullopt: do not wait. At most kLongestWait.
  std::optional<std::chrono::milliseconds> wait;
  /// True: the slice lives until it is released (a device for containers). False: it ends when its cgroup is empty.
  bool keep = false;
  std::string name;  // for users: the name of the command
};

struct GrantedCard {
  CardId card;
  std::string model;
  int minor = -1;
  Bytes memory;
  CoreShare compute;
};

/// The decision, and what the client needs to enter the slice.
struct Grant {
  std::string slice;
  bool whole = false;
  std::vector<GrantedCard> cards;
  std::string slice_folder;    // host path of the folder with the socket; empty when whole
  std::string library_folder;  // host path of libcarve's two objects
  std::string runtime_folder;  // hidden inside the slice
  std::string driver_version;
  DriverFiles driver;
  std::vector<int> hidden_minors;  // device nodes of the other cards
  std::string masking_socket;      // a socket inode that is mounted over them
  std::string card_files;          // folder of the slice's own nodes of its cards; empty: it uses the host's nodes
  std::string device;              // CDI name if one was published, else empty
};

/// All calls of the agent. Implemented by the agent and by its client over the socket. The client ignores `caller`: the
/// kernel identifies it at the socket. Safe from any thread.
///   errors  kPermissionDenied: not permitted for this user; kUnavailable: the agent, the arbiter or the driver is away
class AgentApi {
 public:
  virtual ~AgentApi() = default;
  /// The decision is journaled before the call returns. `gone` is polled while the call waits: true ends the wait
  /// (kCancelled).
  ///   errors  kResourceExhausted: no room now, with the numbers; kFailedPrecondition: never on this machine;
  ///           kInvalidArgument; kDeadlineExceeded: the request did not fit during the wait
  virtual Result<Grant> allocate(const Caller& caller, const AllocateRequest& request,
                                 const std::function<bool()>& gone) = 0;
  /// Moves the calling process into the slice's cgroup. From then on the slice ends when that process and its children
  /// have ended.
  ///   errors  kNotFound: the slice, or the connected process, is gone
  virtual Result<void> join(const Caller& caller, const std::string& slice) = 0;
  /// Ends a slice. If it has processes, `kill` kills them; without `kill` the call fails with kFailedPrecondition.
  virtual Result<void> release(const Caller& caller, const std::string& slice, bool kill) = 0;
  virtual Result<AgentView> view(const Caller& caller) = 0;
  /// The past of the machine.
  ///   errors  kUnimplemented: it records none
  virtual Result<HistoryAnswer> history(const Caller& /*caller*/, const HistoryQuery& /*query*/) {
    return fail(Code::kUnimplemented, "no history is recorded");
  }
};

}  // namespace carve
