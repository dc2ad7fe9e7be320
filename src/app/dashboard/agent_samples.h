#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "app/dashboard/boards.h"
#include "app/dashboard/reader_demand.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"

namespace carve::dashboard {

/// The use that the agents of a cluster report. They are asked only while a caller reads, at most kAsksPerSecond of
/// them: a round takes 2 s for 100 nodes and four minutes for 12,500. Safe from any thread.
class AgentSamples {
 public:
  /// Asks all agents once; views that do not answer are in the list, with the reason.
  using Ask = std::function<Result<std::vector<NodeView>>()>;
  AgentSamples(Ask ask, Clock& clock);

  /// The last answers. Marks that they are read, so that the next round begins.
  [[nodiscard]] std::shared_ptr<const AgentViews> latest() EXCLUDES(mutex_);

  static constexpr std::size_t kAsksPerSecond = 50;
  static constexpr std::chrono::seconds kFewest{1};   // between two rounds, at least

 private:
  void run(const std::stop_token& stop) EXCLUDES(mutex_);

  const Ask ask_;
  Clock& clock_;
  Mutex mutex_;
  std::shared_ptr<const AgentViews> views_ GUARDED_BY(mutex_) = std::make_shared<const AgentViews>();
  ReaderDemand demand_;
  Thread thread_;
};

}  // namespace carve::dashboard
