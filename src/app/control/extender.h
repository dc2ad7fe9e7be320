#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/control/pod_entry.h"
#include "base/clock.h"
#include "codec/dialects/dialect.h"
#include "codec/extender/extender.h"
#include "core/cluster/cluster.h"
#include "core/cluster/assumed_pods.h"
#include "core/cluster/fit_cache.h"
#include "core/policy/rules.h"

namespace carve::control {

/// The answers to kube-scheduler's filter and prioritize calls. Computation on a snapshot: no
/// call to anybody, nothing is set aside, so any replica may answer and a call that is repeated or
/// lost does no harm. With a clock, whom filter_to_place, prioritize or choose sends where is kept in mind for a moment
/// (core/cluster/assumed_pods.h) and shifts the ranking for the pods that come next, nothing else. Safe from any
/// thread.
class Extender {
 public:
  /// `snapshot` gives the cluster as it is known now, `rules` who is placed how; what they point to never changes.
  using Snapshot = std::function<std::shared_ptr<const ClusterState>()>;
  using Rules = std::function<std::shared_ptr<const PlacementRules>()>;
  /// Is told of every call of kube-scheduler's for a pod's nodes what came of it, and for whom.
  using Watcher = std::function<void(const Owner&, const FitView&)>;
  Extender(codec::DialectSettings settings, Rules rules, Snapshot snapshot, Watcher watcher = {},
           const Clock* clock = nullptr)
      : settings_(settings),
        rules_(std::move(rules)),
        snapshot_(std::move(snapshot)),
        watcher_(std::move(watcher)),
        clock_(clock) {}

  /// Every node that serves the pod, and for each other one why not: hopeless ones apart, for which
  /// nobody is evicted. A pod that asks for nothing of ours, or in our names without slots, may go anywhere. What is
  /// wrong with the call or the pod is in `Error`. For whoever asks: the watcher is not told, so nobody goes on a
  /// stranger's word.
  ///   cost    FitCache::fit() and the JSON of both sides
  [[nodiscard]] std::string filter(std::string_view call) const;
  /// The same for kube-scheduler, which asks to prioritize next, but not where one node alone is left: it takes that.
  /// So the pod is expected there from now on.
  [[nodiscard]] std::string filter_to_place(std::string_view call) const;
  /// What it names hopeless are all nodes but the one that is named to the pod: kube-scheduler asks about nodes where
  /// nothing but cards is missing, so its own search for victims finds there that it needs none, and calls that an
  /// error, with the nodes in another order each time; and a pod whose message is another one is tried again at once.
  /// For the same reason the reasons are short (kHindranceTexts) where it asks about kMany nodes or more.
  static constexpr std::size_t kMany = 100;
  /// filter and prioritize in one call: of the nodes that serve the pod the engine's choice alone, so that the
  /// scheduler has nothing left to score or to ask. Where none does, all refusals, as filter. For a scheduler whose
  /// only extender this is: another one might refuse that node.
  ///   cost    as filter; the answer does not grow with the cluster
  [[nodiscard]] std::string choose(std::string_view call) const;
  /// 10 for the engine's choice, at most 9 for all others: the scheduler's own scores, and its
  /// coin, decide nothing. Empty for a call that cannot be read, which the scheduler takes as no
  /// opinion. A node that will be full when those have come who are on their way there gets the least.
  [[nodiscard]] std::string prioritize(std::string_view call) const;
  /// What the pod will hold on that node by what was said a moment ago; empty: nothing was. For its Binding, which
  /// begins. The pod stays expected for AssumedPods::kAfterBinding, or until it is seen to hold: a question that came before
  /// may look at a cluster without it.
  [[nodiscard]] std::vector<Slice> sent_for(const Owner& owner, const std::string& node) const;
  /// Why it was sent there, for a person: among how many nodes, by which policies. Empty: it was not, or by another
  /// replica.
  [[nodiscard]] std::string why_sent(const Owner& owner, const std::string& node) const;
  struct Sent {
    std::string node;
    std::vector<Slice> slices;  // what it will hold there
  };
  /// What choose() would answer if kube-scheduler asked about all nodes that have a card, `but` apart; the pod is
  /// expected there. nullopt: none serves it, or none will when those have come who are on their way.
  ///   cost    as choose()
  [[nodiscard]] std::optional<Sent> choose_anywhere(const PodEntry& pod, const std::set<std::string>& excluded) const;

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
  enum class Answer : std::uint8_t { kAll, kAllToPlace, kOne };
  [[nodiscard]] std::string nodes_for(std::string_view call, Answer wanted) const;
  [[nodiscard]] static FitCache::Ask ask_of(const Asked& asked);
  /// nullptr: no node has what it asks for.
  const FittingView* best_of(Asked& asked) const;

  /// Ranks the nodes by what they will be when those have come who are on their way, chooses, expects the pod there.
  const FittingView* choose_ahead(Asked& asked) const;
  [[nodiscard]] static std::string why_there(const Asked& asked, const NodeState& there);
  /// The nodes where somebody is on their way are ranked by what they will be.
  void look_ahead(Asked& asked) const;
  [[nodiscard]] std::optional<std::vector<Slice>> placed_on(const Asked& asked, const NodeState& state) const;

  codec::DialectSettings settings_;
  Rules rules_;
  Snapshot snapshot_;
  Watcher watcher_;
  const Clock* clock_;
  mutable std::mutex mutex_;
  mutable FitCache cache_;
  mutable AssumedPods assumed_;
};

}  // namespace carve::control
