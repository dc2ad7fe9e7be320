#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "codec/dialects/dialect.h"
#include "codec/extender/extender.h"
#include "core/cluster/cluster.h"
#include "core/cluster/expected.h"
#include "core/cluster/fit_cache.h"
#include "core/policy/rules.h"

namespace carve::control {

/// The answers to kube-scheduler's filter, prioritize and preempt calls. Computation on a snapshot: no
/// call to anybody, nothing is set aside, so any replica may answer and a call that is repeated or
/// lost does no harm. With a clock, whom prioritize sends where is kept in mind for a moment (core/cluster/expected.h)
/// and shifts the ranking for the pods that come next, nothing else. Safe from any thread.
class Extender {
 public:
  /// `snapshot` gives the cluster as it is known now, `rules` who is placed how; what they point to never changes.
  using Snapshot = std::function<std::shared_ptr<const ClusterState>()>;
  using Rules = std::function<std::shared_ptr<const PlacementRules>()>;
  /// Is told of every filter call what came of it, and for whom.
  using Watcher = std::function<void(const Owner&, const FitView&)>;
  Extender(codec::DialectSettings settings, Rules rules, Snapshot snapshot, Watcher watcher = {},
           const Clock* clock = nullptr)
      : settings_(settings),
        rules_(std::move(rules)),
        snapshot_(std::move(snapshot)),
        watcher_(std::move(watcher)),
        clock_(clock) {}

  /// Every node that serves the pod, and for each other one why not: hopeless ones apart, for which
  /// nobody is evicted. A pod that asks for nothing of ours may go anywhere. What is wrong with the
  /// call or the pod is in `Error`.
  ///   cost    FitCache::fit() and the JSON of both sides
  [[nodiscard]] std::string filter(std::string_view call) const;
  /// 10 for the engine's choice, at most 9 for all others: the scheduler's own scores, and its
  /// coin, decide nothing. Empty for a call that cannot be read, which the scheduler takes as no
  /// opinion. A node that will be full when those have come who are on their way there gets the least.
  [[nodiscard]] std::string prioritize(std::string_view call) const;
  /// kube-scheduler proposes whom it would evict on which nodes, and knows nothing of cards. A node on which the pod
  /// would not fit by card after it is dropped, so that nobody is evicted in vain; the others keep their victims, whom
  /// it needs for reasons of its own. A call that cannot be read drops all.
  [[nodiscard]] std::string preempt(std::string_view call) const;

  /// What the pod will hold on that node by what prioritize said a moment ago; empty: nothing was said. For its
  /// Binding, which takes over from here.
  [[nodiscard]] std::vector<Slice> take_expected(const Owner& owner, const std::string& node) const;

 private:
  /// What the pod asks for, and which of the named nodes have it.
  struct Asked {
    codec::ExtenderArgs args;
    std::vector<PartRequest> parts;
    FitView fit;  // names are those of `args`
    Owner owner;
    std::shared_ptr<const ClusterState> cluster;
    std::shared_ptr<const PlacementRules> rules;
    std::optional<PodPolicy> policy;  // of `rules`; nullopt: it asks for nothing of ours
  };
  ///   errors  kInvalidArgument: the call or the pod is wrong
  [[nodiscard]] Result<std::unique_ptr<Asked>> ask(std::string_view call) const;

  /// Ranks the nodes by what they will be when those have come who are on their way, chooses, expects the pod there.
  const FittingView* choose_ahead(Asked& asked) const;
  [[nodiscard]] std::optional<std::vector<Slice>> placed_on(const Asked& asked, const NodeState& state) const;

  codec::DialectSettings settings_;
  Rules rules_;
  Snapshot snapshot_;
  Watcher watcher_;
  const Clock* clock_;
  mutable std::mutex mutex_;
  mutable FitCache cache_;
  mutable Expected expected_;
};

}  // namespace carve::control
