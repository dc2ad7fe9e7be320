#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "port/agent_api.h"
#include "port/card_files.h"
#include "port/cgroups.h"
#include "port/containers.h"
#include "port/gpu.h"
#include "port/history_store.h"
#include "port/known_cards_store.h"
#include "port/node_journal.h"
#include "port/pages.h"
#include "port/processes.h"
#include "port/slice_devices.h"

namespace carve::agent {

/// The ports and other objects that the agent uses. All of them outlive it.
struct AgentWorld {
  Gpu& gpu;
  Pages& pages;
  Cgroups* cgroups;  // nullptr: `cgroup_error` is the reason; then only devices can be created
  std::string cgroup_error;
  NodeJournal& journal;
  SliceDevices& devices;
  Processes& processes;
  const Clock& clock;
  Log& log;
  /// Creates the link names for this driver version in the library folder.
  std::function<Result<void>(const std::string& driver_version)> prepare_links;
  Containers* containers = nullptr;  // nullptr: the kubelet's cgroups cannot be read
  KnownCardsStore* known_cards = nullptr;  // nullptr: if the driver is away at the start, no card is known
  CardFiles* card_files = nullptr;  // nullptr: the cards' device files do not belong to Carve
  HistoryStore* history = nullptr;  // nullptr: no history is recorded
};

}  // namespace carve::agent
