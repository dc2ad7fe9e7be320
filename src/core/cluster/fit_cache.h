#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/ruled_fit.h"

namespace carve {

/// A node of a FitView, by the name that was asked with.
struct FittingView {
  std::string_view node;
  std::int64_t score = 0;
  const std::shared_ptr<const NodeState>* state = nullptr;  // lives as long as the cluster that was asked about
  ClusterState::Number number = 0;                          // there
};
struct RefusedView {
  std::string_view node;
  std::shared_ptr<const std::string> why;
  bool final = false;
  Hindrance class_of_why = Hindrance::kNoCard;
};

/// As choose_node() of a Fit.
[[nodiscard]] const FittingView* choose_node(const std::vector<FittingView>& nodes);

/// A Fit without copies: its names are those of the call that asked.
struct FitView {
  std::vector<FittingView> nodes;
  std::vector<RefusedView> refused;
};

/// fit() that remembers: what a node said to a request is its word as long as the node is the very same object. In a
/// burst of pods that ask alike only the nodes are asked again that changed since, and those where room is held. Pods
/// differ in their owner, which place_pod() does not look at while the owner holds nothing, as whoever waits for a
/// node. Not thread-safe.
///   memory  at most kShapes requests, each with some 100 bytes per node
class FitCache {
 public:
  static constexpr std::size_t kShapes = 16;  // different requests that are remembered, the last used ones

  /// What counts for one pod. The rules are those of which `policy` is made.
  struct Ask {
    const Owner& owner;
    const std::vector<PartRequest>& parts;
    const std::vector<std::string_view>& names;
    std::shared_ptr<const PlacementRules> rules;
    PodPolicy policy;
    std::int32_t priority = 0;
  };
  ///   out     as fit(); the names live as long as `ask.names`
  ///   cost    a look-up per name; place_pod() per node that changed since it was asked for the same; when a node came
  ///           or went all are asked anew
  [[nodiscard]] FitView fit(const std::shared_ptr<const ClusterState>& cluster, const Ask& ask);
  /// The score of a node of that cluster as it will be, if it fits then. Remembered as fit() does, beside its answers.
  [[nodiscard]] std::optional<std::int64_t> score_ahead(const std::shared_ptr<const ClusterState>& cluster,
                                                        ClusterState::Number number,
                                                        const std::shared_ptr<const NodeState>& ahead, const Ask& ask);

  struct Stats {
    std::uint64_t remembered = 0;  // nodes whose word was known
    std::uint64_t asked = 0;       // nodes that were asked
  };
  [[nodiscard]] Stats figures() const { return figures_; }

 private:
  /// What a node said.
  struct Word {
    std::shared_ptr<const NodeState> state;        // who said it; nullptr: nobody yet
    std::shared_ptr<const std::string> why;        // nullptr: it fits
    std::int64_t score = 0;
    bool final = false;
    bool for_all = false;  // room is set aside for nobody there: whoever asks for the same is told the same
    Hindrance class_of_why = Hindrance::kNoCard;
  };
  struct Shape {
    std::vector<PartRequest> parts;
    std::shared_ptr<const PlacementRules> rules;
    PodPolicy policy;
    std::vector<Word> words;  // by the node's number
    std::vector<Word> ahead;  // of the nodes as they will be
  };

  void see(const std::shared_ptr<const ClusterState>& cluster);
  Shape& shape_of(const Ask& ask);
  /// Asks, unless that very object has answered already.
  void ask_again(Word* known, const std::shared_ptr<const NodeState>& state, const Ask& ask);
  void answer(Shape& shape, ClusterState::Number number, std::string_view name, const Ask& ask, FitView* view);
  static void say(const Word& word, const FittingView& node, FitView* view);

  std::shared_ptr<const ClusterState> seen_;
  std::list<Shape> shapes_;  // the last used first
  Stats figures_;
};

}  // namespace carve
