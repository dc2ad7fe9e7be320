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

namespace carve::agent {

/// kThrottle and kEscalate apply to compute only. kThrottle only freezes, for a part of each second. kEscalate
/// continues with revoke and then kill (see ComputeStep) if freezing does not stop the slice.
enum class BreachAction : std::uint8_t { kKill, kThrottle, kReport, kEscalate };

struct AgentConfig {
  std::string runtime_folder;
  std::string slices_folder;  // where the arbiter creates <id>/s, or <id>/<id>/s in a private folder
  std::string whole_folder;   // where each whole card has its mark, an empty folder <id>
  std::string masking_socket;
  std::string library_folder;
  std::string state_folder, device_folder;  // shown in AgentView, for diagnosis
  std::string library_error;  // not empty: the reason why no fractions can be granted
  std::vector<std::string> driver_mounts;
  std::vector<AccessRule> access;
  std::uint32_t slices_for_root = kUsualSlicesForRoot;  // slices of each card that only root may take
  BreachAction on_memory = BreachAction::kKill;  // for memory beyond the limit, a foreign card, or without a hello
  BreachAction on_compute = BreachAction::kEscalate;
  Clock::Duration start_time = std::chrono::seconds(30);  // from the grant to the first process
  // The same for a slice of an earlier agent. A caller that got an answer retries every 100 ms.
  Clock::Duration rejoin_time = std::chrono::seconds(5);
  Clock::Duration arbiter_settles = std::chrono::seconds(1);  // from its start until its list counts
  WatchBounds bounds;
  UnexplainedBounds unexplained;
  std::vector<std::string> trusted_holders;  // programs outside slices that may hold cards: is_bystander()
  bool gives_cards = true;  // false: only the kubelet plugins grant cards, and allocate() refuses
  Clock::Duration last_process = std::chrono::seconds(1);  // how long unprepare() waits for the last process
  XidPolicy xid_policy = built_in_xid_policy();
  std::string boot_id, version;  // the kernel's boot ID (a reboot resets cards); the version of Carve
  std::uint32_t page_abi = 0;
};

}  // namespace carve::agent
