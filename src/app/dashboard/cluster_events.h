#pragma once

#include <array>
#include <map>
#include <string>

#include "app/dashboard/reader_demand.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "codec/views/board.h"
#include "port/kube_api.h"

namespace carve::dashboard {

/// The Kubernetes events that Carve's agents and control recorded, watched while a caller reads. Safe from any thread.
class ClusterEvents {
 public:
  ClusterEvents(KubeApi& api, Clock& clock);

  /// Adds the events to the board, the newest kMost: what the watches have delivered so far. Marks that they are read.
  ///   cost    no call of the API server
  void add(codec::Board* board) EXCLUDES(mutex_);

  static constexpr std::size_t kMost = 500;

 private:
  /// The events of one component, by UID; at most twice kMost.
  using Events = std::map<std::string, codec::BoardEvent>;
  static constexpr std::array kComponents = {"carve-agent", "carve-control"};

  void watch_until_unread(const std::stop_token& stop);
  void replace(std::size_t component, const std::vector<std::string>& objects) EXCLUDES(mutex_);
  void change(std::size_t component, const KubeChange& change) EXCLUDES(mutex_);

  KubeApi& api_;
  Clock& clock_;
  Mutex mutex_;
  std::array<Events, kComponents.size()> events_ GUARDED_BY(mutex_);
  ReaderDemand demand_;
  Thread thread_;
};

}  // namespace carve::dashboard
