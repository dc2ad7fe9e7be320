#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/model/finding.h"
#include "port/agent_api.h"

// `carve doctor`: from what was seen of this host to findings a person can act on. Pure.
namespace carve::cli {

/// A card's device file.
struct CardFileFact {
  std::string path;
  std::uint32_t mode = 0;  // without its type: 0666
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// What was looked up on this host. Texts are empty where all is well.
struct HostFacts {
  bool is_node = false;  // of Kubernetes: its processes are pods, nothing is started by `carve up`
  std::string runtime_folder;
  std::string state_folder;
  std::string library_folder;
  std::optional<bool> supervisor_lives;  // holds its lock, as the next two; nullopt: only root sees that
  std::optional<bool> agent_lives;
  std::optional<bool> arbiter_lives;
  bool agent_socket_exists = false;
  std::string agent_error;  // why the agent did not answer
  bool runtime_exists = false;
  bool runtime_on_tmpfs = false;
  bool libraries_noexec = false;
  std::string state_error;  // cannot be written
  std::optional<Bytes> state_free;
  std::string cgroup_error;
  std::string cgroup_mount;       // where cgroup2 is mounted; empty: nowhere
  bool cgroup_read_only = false;  // that mount
  std::string journal_error;      // no agent answers, and none could read its journal
  std::string user_namespaces_error;
  bool overlay_known = true;               // the kernel has overlayfs
  std::vector<std::string> missing_nodes;  // device nodes of cards that the driver lists
  std::vector<CardFileFact> card_files;    // those that exist
  /// The mode that the driver's own tool gives them, which any user may start (setuid root); nullopt: none.
  std::optional<std::uint32_t> driver_sets_mode;
};

/// All that is wrong, worst first. Notes are no fault: they tell what cannot be used here.
[[nodiscard]] std::vector<Finding> diagnose(const HostFacts& host, const std::optional<AgentView>& view);

/// Worst first.
void sort_by_severity(std::vector<Finding>* findings);

[[nodiscard]] std::string render_findings(const std::vector<Finding>& findings,
                                          const std::optional<AgentView>& view);

/// True when something is wrong: exit code 1.
[[nodiscard]] bool anything_wrong(const std::vector<Finding>& findings);

}  // namespace carve::cli
