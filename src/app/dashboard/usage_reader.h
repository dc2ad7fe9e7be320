#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "app/dashboard/viewer.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/thread.h"
#include "codec/views/usage.h"
#include "core/history/history.h"

namespace carve::dashboard {

/// What the namespaces used over a time, from the agents' history. It is read when a caller asks, in a thread of its
/// own, because it takes minutes in a cluster of thousands of nodes; several callers share one read. The sums are kept
/// for kKept, or ten times as long as the read took. Safe from any thread.
class UsageReader {
 public:
  /// One agent's answer; an error: it is silent. Called for one agent after the other, from any thread.
  using Take = std::function<void(const Result<HistoryAnswer>&)>;
  /// Asks all agents, and hands over each answer as it arrives. Returns early after the stop is requested.
  ///   in   agents: called once, with their number, before the first answer
  using Ask = std::function<Result<void>(const HistoryQuery&, const std::function<void(std::size_t)>& agents,
                                         const Take& take, const std::stop_token& stop)>;
  /// The texts of all ResourceQuotas. An empty function: there is no Kubernetes.
  using Quotas = std::function<Result<std::vector<std::string>>()>;
  /// The quotas of carve-placement, with what is used of them. An empty function: there are none.
  using OwnQuotas = std::function<std::vector<codec::CardQuota>()>;
  using Shared = std::shared_ptr<const codec::Usage>;
  UsageReader(Ask ask, Quotas quotas, const Clock& clock, OwnQuotas own_quotas = {})
      : ask_(std::move(ask)), quotas_(std::move(quotas)), own_quotas_(std::move(own_quotas)), clock_(clock) {}

  ///   errors  those of `ask`; kUnavailable: the agents are still being asked, and how many have answered
  ///   cost    waits for up to `patience`; a read is a call of every agent, about 50 per second
  [[nodiscard]] Result<Shared> of(std::chrono::seconds since) EXCLUDES(mutex_);

  static constexpr std::chrono::seconds kKept{60};
  static constexpr std::size_t kMostKept = 8;
  /// How long a caller waits for a read, in real time.
  static constexpr std::chrono::seconds kPatience{3};
  void set_patience(std::chrono::milliseconds patience) EXCLUDES(mutex_);

 private:
  /// The body of the thread.
  void read(std::chrono::seconds since, const std::stop_token& stop) EXCLUDES(mutex_);
  void add_quotas(codec::Usage* usage) const;

  const Ask ask_;
  const Quotas quotas_;
  const OwnQuotas own_quotas_;
  const Clock& clock_;
  struct Kept {
    Shared usage;
    Clock::Time until{};
  };
  /// A read in progress, or its end.
  struct Reading {
    std::chrono::seconds since{};
    bool done = true;
    std::optional<Error> error;  // of a read that is done
    std::size_t agents = 0;
    std::size_t answered = 0;
  };
  Mutex mutex_;
  Condition changed_;
  std::chrono::milliseconds patience_ GUARDED_BY(mutex_){kPatience};
  Reading reading_ GUARDED_BY(mutex_);
  std::map<std::chrono::seconds, Kept> kept_ GUARDED_BY(mutex_);
  Thread thread_ GUARDED_BY(mutex_);  // the last member: it ends before the others are destroyed
};

/// The namespaces that occur in it.
[[nodiscard]] std::set<std::string> namespaces_in(const codec::Usage& usage);

/// The usage of the namespaces that the viewer sees.
[[nodiscard]] codec::Usage seen_by(const Viewer& viewer, const codec::Usage& usage);

}  // namespace carve::dashboard
