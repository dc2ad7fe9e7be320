#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "app/control/admission/admission_fault.h"
#include "app/control/bind/binder.h"
#include "app/control/state/cluster_model.h"
#include "app/control/state/policy_watcher.h"
#include "app/control/schedule/node_nominator.h"
#include "app/control/preempt/preemptor.h"
#include "codec/metrics/metrics_text.h"
#include "core/cluster/cluster.h"
#include "core/cluster/fit_cache.h"

namespace carve::control {

/// A histogram of durations. Safe from any thread, lock-free.
class Durations {
 public:
  /// Upper bounds in seconds, from the fastest filter call to the longest wait for the API server.
  static constexpr std::array<double, 14> kBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                     0.1,    0.25,  0.5,    1,     2.5,  5,     10};
  void observe(std::chrono::nanoseconds took);
  /// Appends the samples to the current family, with the label `verb`.
  void write(std::string_view verb, codec::MetricsText* text) const;

 private:
  std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::uint64_t> sum_ns_ = 0;
};

/// Counters of control's own work. Safe from any thread.
class ControlMetrics {
 public:
  enum class Verb : std::uint8_t { kFilter, kPrioritize, kBind, kPreempt, kMutate, kValidate, kRead, kOther };
  static constexpr std::size_t kVerbs = 8;
  /// The outcome of a request. kRefused: the request was handled, and the answer is a refusal.
  enum class Ended : std::uint8_t { kOk, kRefused, kFailed };

  void observe(Verb verb, Ended ended, std::chrono::nanoseconds took);
  /// Counts the nodes of one filter call by result.
  void observe_filter(const FitView& fit);
  /// Counts the faults of a pod that admission refused.
  void observe_refusal(AdmissionFaults faults);

  /// Writes all of the above as metric families.
  void write(codec::MetricsText* text) const;

 private:
  struct PerVerb {
    std::array<std::atomic<std::uint64_t>, 3> outcomes{};
    Durations durations;
  };
  std::array<PerVerb, kVerbs> verbs_;
  std::atomic<std::uint64_t> nodes_fit_ = 0;
  std::atomic<std::uint64_t> nodes_full_ = 0;
  std::atomic<std::uint64_t> nodes_never_ = 0;
  std::array<std::atomic<std::uint64_t>, kUnschedulableReasons> nodes_refused_{};
  std::array<std::atomic<std::uint64_t>, kAdmissionFaults> reviews_refused_{};
};

/// Per card of the cluster: its capacity and what is granted of it, for dashboards and alerts.
void write_cards(const ClusterState& cluster, codec::MetricsText* text);
/// What still fits on the cards, by model. Cost: O(cards).
void write_free_room(const ClusterState& cluster, codec::MetricsText* text);
/// Whether control can start with the current content of the ConfigMap.
void write_settings(bool good, codec::MetricsText* text);
/// Whether the current placement rules are in effect, and how often they changed.
void write_placement(const PolicyWatcher::Stats& stats, codec::MetricsText* text);
/// The namespaces' quotas and what is used of them.
void write_quotas(const std::vector<QuotaUse>& uses, codec::MetricsText* text);
/// The outcomes of Bindings and of preemptions.
void write_bindings(const Binder::Stats& stats, codec::MetricsText* text);
void write_preemptions(const Preemptor::Stats& stats, codec::MetricsText* text);
/// Nominations of nodes that kube-scheduler did not look at.
void write_node_nominator(const NodeNominator::Stats& stats, codec::MetricsText* text);
/// Counts from the cluster model.
void write_cluster_stats(const ClusterModel::Stats& stats, codec::MetricsText* text);

}  // namespace carve::control
