#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "adapter/nvml/activity.h"
#include "adapter/nvml/library.h"
#include "adapter/nvml/wire.h"

namespace carve::nvml {

/// The handles of one inventory. They are invalid after the next inventory, which has another generation.
struct Handles {
  std::uint64_t generation = 0;
  std::vector<Device> devices;
  std::vector<unsigned long long> last_sample_us;     // per card
  std::vector<std::map<unsigned, unsigned>> last_sm;  // per card: PID → percent
  std::vector<std::chrono::steady_clock::time_point> sampled_at;  // per card: when last_sm was taken
  ActivityReader activity;
};

/// Lists the cards. A lost card is omitted and is not an error. Returns an NVML code; `what` is the call that failed.
int take_inventory(const Library& library, Handles* handles, WireMachine* machine,
                   std::vector<WireCard>* cards, std::string* what);

/// The use of one card and its processes. Returns an NVML code, like take_inventory().
int take_usage(const Library& library, Handles* handles, std::size_t card, WireUsage* usage,
               std::vector<WireProcess>* processes, std::string* what);

}  // namespace carve::nvml
