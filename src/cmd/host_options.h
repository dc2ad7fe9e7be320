#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapter/cdi/driver_files.h"
#include "app/agent/access.h"
#include "app/agent/agent_config.h"

namespace carve::cmd {

/// Folders of this host. Empty: the default, or detected.
struct HostOptions {
  std::string config;                        // file; empty: /etc/carve/carve.conf when it exists
  std::optional<std::string> config_text;    // its text as read; nullopt: there is no file
  std::string runtime_dir = "/run/carve";    // sockets, pages, slices
  std::string state_dir = "/var/lib/carve";  // journal
  std::string lib_dir;                       // <state_dir>/lib
  std::string lib_source;                    // folder of libcarve-*.so; empty: next to the executable
  std::string driver_root;                   // folder of the driver's libraries; empty: the loader's search path
  std::string cdi_dir = "/var/run/cdi";
  std::string host_root;                   // where the host's / is mounted; empty: at /
  std::string cgroup_root;                 // <cgroup2 mount>/carve
  std::vector<cdi::DriverUse> driver_uses;  // kinds of driver libraries, in addition to those for compute
  std::vector<std::string> driver_mounts;  // additional paths that the driver needs in containers
  std::vector<agent::AccessRule> access;   // users who may request slices; empty: root and group carve
  std::uint32_t slices_for_root = agent::kUsualSlicesForRoot;  // slices of each card that only root may take
  std::string health_policy;               // file: what XIDs mean; empty: the built-in table
  bool own_devices = false;                // the cards' device files belong to Carve while it is up
  std::string own_devices_group;           // members can open them outside slices; empty: only root can
  std::vector<std::string> trusted_holders;  // programs of root or system accounts that may hold cards outside slices
  agent::BreachAction on_memory = agent::BreachAction::kKill;
  agent::BreachAction on_compute = agent::BreachAction::kEscalate;

  [[nodiscard]] std::string agent_socket() const { return runtime_dir + "/agent.sock"; }
  [[nodiscard]] std::string slices_dir() const { return runtime_dir + "/slices"; }
  [[nodiscard]] std::string whole_dir() const { return runtime_dir + "/whole"; }
  [[nodiscard]] std::string libraries() const { return lib_dir.empty() ? state_dir + "/lib" : lib_dir; }
};

}  // namespace carve::cmd
