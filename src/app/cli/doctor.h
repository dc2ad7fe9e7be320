#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/model/finding.h"
#include "port/agent_api.h"

// `carve doctor`: turns the facts about this host into findings that a person can act on. Pure.
namespace carve::cli {

/// A card's device file.
struct CardFileFact {
  std::string path;
  std::uint32_t mode = 0;  // without the file type: 0666
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// The facts about this host. An error text is empty when nothing is wrong.
struct HostFacts {
  bool is_node = false;  // a Kubernetes node: Carve's processes run in pods, `carve up` starts none
  std::string runtime_folder;
  std::string state_folder;
  std::string library_folder;
  // The next three: true while the process holds its lock file; nullopt: only root can see it.
  std::optional<bool> supervisor_lives;
  std::optional<bool> agent_lives;
  std::optional<bool> arbiter_lives;
  bool agent_socket_exists = false;
  std::string agent_error;  // why the agent did not answer
  bool runtime_exists = false;
  bool runtime_on_tmpfs = false;
  bool libraries_noexec = false;
  std::string state_error;  // why the state folder cannot be written
  std::optional<Bytes> state_free;
  std::string cgroup_error;
  std::string cgroup_mount;       // where cgroup2 is mounted; empty: it is not mounted
  bool cgroup_read_only = false;  // cgroup_mount is mounted read-only
  std::string journal_error;      // set when no agent answers and the journal cannot be read
  std::string user_namespaces_error;
  bool overlay_known = true;               // the kernel has overlayfs
  std::vector<std::string> missing_nodes;  // device nodes of cards that the driver lists
  std::vector<CardFileFact> card_files;    // the existing device nodes of cards
  /// The mode that nvidia-modprobe sets on the cards' device nodes. It is setuid root, so any user can run it at any
  /// time. nullopt: it does not set a mode.
  std::optional<std::uint32_t> driver_sets_mode;
};

/// All findings, errors first. A note is not a fault: it says what cannot be used on this host.
[[nodiscard]] std::vector<Finding> diagnose(const HostFacts& host, const std::optional<AgentView>& view);

/// Errors first, then warnings, then notes.
void sort_by_severity(std::vector<Finding>* findings);

[[nodiscard]] std::string render_findings(const std::vector<Finding>& findings,
                                          const std::optional<AgentView>& view);

/// True when a finding is an error or a warning: `carve doctor` then exits with code 1.
[[nodiscard]] bool anything_wrong(const std::vector<Finding>& findings);

}  // namespace carve::cli
