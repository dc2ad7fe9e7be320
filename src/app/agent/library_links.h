#pragma once

#include <string>

#include "app/agent/agent_config.h"
#include "app/agent/agent_world.h"
#include "base/mutex.h"

namespace carve::agent {

/// The link names of libcarve's objects for the driver's version. Without them no fraction can be granted. Safe from
/// any thread.
class LibraryLinks {
 public:
  LibraryLinks(const AgentConfig& config, const AgentWorld& world) : config_(config), world_(world) {}
  /// Creates the links for this driver. A failed attempt is not repeated within 30 s: each attempt copies the library
  /// until the disk is full, and meanwhile every other program that writes to the disk fails.
  void make(const std::string& driver_version) EXCLUDES(mutex_);
  /// Why no fractions can be granted; empty: they can be granted.
  [[nodiscard]] std::string error() const EXCLUDES(mutex_);
  /// True: the last attempt failed, and a later one may succeed.
  [[nodiscard]] bool failed() const EXCLUDES(mutex_);

 private:
  const AgentConfig& config_;
  const AgentWorld& world_;
  mutable Mutex mutex_;
  std::string error_ GUARDED_BY(mutex_);    // of the last attempt
  std::string version_ GUARDED_BY(mutex_);  // of the driver that it was for
  Clock::Time tried_ GUARDED_BY(mutex_){};
};

}  // namespace carve::agent
