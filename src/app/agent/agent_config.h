#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "app/agent/access.h"
#include "app/agent/unexplained.h"
#include "app/agent/watchdog.h"
#include "base/clock.h"
#include "core/health/xid_policy.h"

namespace carve {

/// kThrottle and kEscalate apply to compute only. kThrottle only freezes, for a part of each second. kEscalate
/// continues with revoke and then kill (see ComputeStep) if freezing does not stop the slice.
enum class BreachAction : std::uint8_t { kKill, kThrottle, kReport, kEscalate };

struct AgentConfig {
  std::string runtime_folder;
  std::string slices_folder;  // where the arbiter makes <id>/s, or <id>/<id>/s behind a gate
  std::string whole_folder;   // where whole cards have their marks: <id>, empty
  std::string masking_socket;
  std::string library_folder;
  std::string state_folder, device_folder;  // for whoever looks for what is wrong: AgentView
  std::string library_error;  // not empty: no fractions can be given, and why
  std::vector<std::string> driver_mounts;
  std::vector<AccessRule> access;
  std::uint32_t slices_for_root = kUsualSlicesForRoot;  // slices of each card that only root may take
  BreachAction on_memory = BreachAction::kKill;  // unregistered, foreign card, over the limit
  BreachAction on_compute = BreachAction::kEscalate;
  Clock::Duration start_time = std::chrono::seconds(30);  // from the grant to the first process
  // The same for a slice of an agent before this one. Whoever was answered asks anew every tenth of a second.
  Clock::Duration rejoin_time = std::chrono::seconds(5);
  Clock::Duration arbiter_settles = std::chrono::seconds(1);  // before its word on who is registered counts
  WatchBounds bounds;
  UnexplainedBounds unexplained;
  bool gives_cards = true;  // false: only the doors of Kubernetes do, allocate() refuses
  Clock::Duration last_process = std::chrono::seconds(1);  // how long unprepare() waits for it
  XidPolicy xid_policy = built_in_xid_policy();
  std::string boot_id, version;  // the kernel's: a reboot resets cards; Carve's
  std::uint32_t page_abi = 0;
};

}  // namespace carve
