#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "port/agent_api.h"

namespace carve::mountns {

/// What a process of a slice is to see. Host paths.
struct EnclosurePlan {
  bool user_namespace = false;
  bool whole = false;        // the driver's own files, no library of ours
  std::string links_folder;  // link names → libcarve; empty when whole
  DriverFiles driver;
  std::string slice_folder;    // empty when whole
  std::string runtime_folder;  // to be hidden: sockets of agent and arbiter, other slices
  std::vector<int> hidden_minors;
  std::string masking_socket;
  std::string card_files;       // folder of its own nodes of its cards; empty: they are the host's
  std::vector<int> own_minors;  // of its cards
};

/// The plan for a grant, for a caller with this effective user.
[[nodiscard]] EnclosurePlan plan_for(const Grant& grant, bool ordinary_user);

/// Gives the calling process (one thread) a private view of the machine and puts the slice into it:
/// libcarve under the driver's link names in the usual library folders, the driver's own files in
/// /usr/lib/carve/driver, its own folder alone in /run/carve/slices, the other cards' device nodes behind a
/// socket inode, its own nodes over those of its cards where it has such, the driver's names in the loader's cache.
/// What it execs, and all children, see the same. Cannot be taken back: on an error, exit.
///   errors  kPermissionDenied: user namespaces are forbidden, …; every text names the path
[[nodiscard]] Result<void> enter(const EnclosurePlan& plan);

/// Folders that must exist on the host before anybody can enter (an ordinary user could not make them).
/// Made by the agent; left there, empty.
[[nodiscard]] Result<void> make_mount_points();

}  // namespace carve::mountns
