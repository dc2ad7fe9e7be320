#pragma once

#include <vector>

#include "app/agent/card_file_guard.h"
#include "app/agent/local_slices.h"
#include "app/agent/second_line.h"

namespace carve::agent {

/// The views for inspect, top and doctor, and for the kubelet plugins: copies of the last round's observations. They
/// wait for no other process. Safe from any thread.
class NodeViews {
 public:
  /// The parts of the agent that are shown.
  struct Parts {
    const SliceStore& store;
    const NodeCards& cards;
    const ArbiterPages& pages;
    const SliceLifecycle& lifecycle;
    const SecondLine& second_line;
    const LocalSlices& local;
    const LibraryLinks& links;
    const CardFileGuard& card_files;
    const EventLog& events;
  };
  NodeViews(const AgentConfig& config, const AgentWorld& world, Parts parts)
      : config_(config), world_(world), parts_(parts) {}

  /// As AgentApi::view(). The processes' names are read without any lock.
  [[nodiscard]] AgentView view(const Caller& caller) const;
  // As in NodeSlices.
  [[nodiscard]] std::vector<Slice> held() const;
  [[nodiscard]] std::vector<HeldSlice> holdings() const;
  [[nodiscard]] NodeTroubles troubles() const;
  /// The same as root sees it, with processes without their names: it reads nothing from /proc.
  [[nodiscard]] AgentView of_last_round() const;

 private:
  const AgentConfig& config_;
  const AgentWorld& world_;
  const Parts parts_;
};

}  // namespace carve::agent
