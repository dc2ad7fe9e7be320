#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapter/cdi/driver_files.h"
#include "app/agent/access.h"
#include "app/agent/agent_config.h"

namespace carve::cmd {

/// Folders of this host. Empty: the default, or found out.
struct HostOptions {
  std::string config;                        // file; empty: /etc/carve/carve.conf when it exists
  std::optional<std::string> config_text;    // what was read of it; nullopt: there is none
  std::string runtime_dir = "/run/carve";    // sockets, pages, slices
  std::string state_dir = "/var/lib/carve";  // journal
  std::string lib_dir;                       // <state_dir>/lib
  std::string lib_source;                    // folder of libcarve-*.so; beside the executable
  std::string driver_root;                   // where the driver's libraries are; the loader's search
  std::string cdi_dir = "/var/run/cdi";
  std::string host_root;                   // where the host's files are seen; empty: at their own paths
  std::string cgroup_root;                 // <cgroup2 mount>/carve
  std::vector<cdi::DriverUse> driver_uses;  // kinds of driver libraries besides those for compute
  std::vector<std::string> driver_mounts;  // what the driver needs in containers besides
  std::vector<AccessRule> access;          // who may ask; without any: group carve
  std::uint32_t slices_for_root = kUsualSlicesForRoot;  // of each card's; no ordinary user takes them
  std::string health_policy;               // file: what XIDs mean; empty: the built-in table
  bool own_devices = false;                // the cards' device files belong to Carve while it is up
  std::string own_devices_group;           // its members may open them outside slices, too; empty: root alone
  BreachAction on_memory = BreachAction::kKill;
  BreachAction on_compute = BreachAction::kThrottle;

  [[nodiscard]] std::string agent_socket() const { return runtime_dir + "/agent.sock"; }
  [[nodiscard]] std::string slices_dir() const { return runtime_dir + "/slices"; }
  [[nodiscard]] std::string whole_dir() const { return runtime_dir + "/whole"; }
  [[nodiscard]] std::string libraries() const { return lib_dir.empty() ? state_dir + "/lib" : lib_dir; }
};

}  // namespace carve::cmd
