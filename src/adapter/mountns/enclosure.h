#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"

namespace carve::mountns {

/// The files that a process of a slice sees. All paths are the host's.
struct EnclosurePlan {
  bool user_namespace = false;
  bool whole = false;        // a whole card: the driver's own files instead of libcarve
  std::string links_folder;  // link names → libcarve; empty when whole
  DriverFiles driver;
  std::string slice_folder;    // empty when whole
  std::string runtime_folder;  // hidden from the process: the sockets of agent and arbiter, other slices
  std::vector<int> hidden_minors;
  std::string masking_socket;
  std::string card_files;       // folder of the slice's own nodes; empty: it uses the host's nodes
  std::vector<int> own_minors;  // minors of its cards
};

/// The plan for a grant. `ordinary_user`: the caller's effective user is not root.
[[nodiscard]] EnclosurePlan plan_for(const Grant& grant, bool ordinary_user);

/// Gives the calling process, which must have one thread, a private view of the machine that contains the slice:
/// libcarve under the driver's link names in the usual library folders, the driver's own files in
/// /usr/lib/carve/driver, only the slice's own folder in /run/carve/slices, a socket inode over the device nodes of
/// other cards, the slice's own nodes (if it has any) over those of its cards, and the driver's names in the loader's
/// cache. Programs that the process executes, and all children, see the same. This cannot be undone: on an error, the
/// process must exit.
///   errors  kPermissionDenied: user namespaces are forbidden, …; every error names the path
[[nodiscard]] Result<void> enter(const EnclosurePlan& plan);

/// Creates the folders that must exist on the host before enter(), because a user other than root could not create
/// them. The agent calls this function; the empty folders remain.
[[nodiscard]] Result<void> make_mount_points();

}  // namespace carve::mountns
