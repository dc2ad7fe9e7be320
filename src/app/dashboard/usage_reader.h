#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "app/dashboard/viewer.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/views/usage.h"
#include "core/history/history.h"

namespace carve::dashboard {

/// What the namespaces used over a time, from the agents' history. It is read when a caller asks, at most once per
/// kKept for each time; several callers share one read. Safe from any thread.
class UsageReader {
 public:
  /// The answers of all agents.
  struct Histories {
    std::vector<HistoryAnswer> answers;
    std::size_t silent = 0;  // agents without an answer
  };
  using Ask = std::function<Result<Histories>(const HistoryQuery&)>;
  /// The texts of all ResourceQuotas. An empty function: there is no Kubernetes.
  using Quotas = std::function<Result<std::vector<std::string>>()>;
  /// The quotas of carve-placement, with what is used of them. An empty function: there are none.
  using OwnQuotas = std::function<std::vector<codec::CardQuota>()>;
  using Shared = std::shared_ptr<const codec::Usage>;
  UsageReader(Ask ask, Quotas quotas, const Clock& clock, OwnQuotas own_quotas = {})
      : ask_(std::move(ask)), quotas_(std::move(quotas)), own_quotas_(std::move(own_quotas)), clock_(clock) {}

  ///   errors  those of `ask`
  ///   cost    a call of every agent: about 2 s for 100 nodes
  [[nodiscard]] Result<Shared> of(std::chrono::seconds since) EXCLUDES(mutex_);

  static constexpr std::chrono::seconds kKept{60};
  static constexpr std::size_t kMostKept = 8;
  /// With more nodes than this, a call would take too long for a page. `carve report` has no limit.
  static constexpr std::size_t kMostNodes = 500;

 private:
  [[nodiscard]] Result<Shared> read(std::chrono::seconds since) const;

  const Ask ask_;
  const Quotas quotas_;
  const OwnQuotas own_quotas_;
  const Clock& clock_;
  struct Kept {
    Shared usage;
    Clock::Time at{};
  };
  Mutex mutex_;
  Condition read_;
  bool reading_ GUARDED_BY(mutex_) = false;
  std::map<std::chrono::seconds, Kept> kept_ GUARDED_BY(mutex_);
};

/// The namespaces that occur in it.
[[nodiscard]] std::set<std::string> namespaces_in(const codec::Usage& usage);

/// The usage of the namespaces that the viewer sees.
[[nodiscard]] codec::Usage seen_by(const Viewer& viewer, const codec::Usage& usage);

}  // namespace carve::dashboard
