#include "core/cluster/fit_cache.h"

#include <algorithm>
#include <utility>

namespace carve {
namespace {

const std::shared_ptr<const std::string>& no_card() {
  static const auto kText = std::make_shared<const std::string>(kNoCardThere);
  return kText;
}

}  // namespace

const FittingView* choose_node(const std::vector<FittingView>& nodes) {
  const FittingView* best = nullptr;
  for (const FittingView& node : nodes) {
    if (best == nullptr || node.score > best->score || (node.score == best->score && node.node < best->node))
      best = &node;
  }
  return best;
}

/// Nodes are numbered in the order of their names. Most changes leave the names as they were: then the numbers stay.
void FitCache::see(const std::shared_ptr<const ClusterState>& cluster) {
  if (cluster == seen_) return;
  const bool same_names = seen_ != nullptr && seen_->size() == cluster->size() &&
                          std::equal(seen_->begin(), seen_->end(), cluster->begin(),
                                     [](const auto& a, const auto& b) { return a.first == b.first; });
  seen_ = cluster;
  states_.clear();
  for (const auto& [name, state] : *cluster) states_.push_back(&state);
  if (same_names) return;
  numbers_.clear();
  shapes_.clear();
  std::uint32_t number = 0;
  for (const auto& [name, state] : *cluster) numbers_.emplace(name, number++);
}

FitCache::Shape& FitCache::shape_of(const Ask& ask) {
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    return shape.rules == ask.rules && shape.policy == ask.policy && shape.parts == ask.parts;
  });
  if (found != shapes_.end()) {
    shapes_.splice(shapes_.begin(), shapes_, found);
  } else {
    if (shapes_.size() == kShapes) shapes_.pop_back();
    shapes_.push_front(Shape{ask.parts, ask.rules, ask.policy, std::vector<Word>(states_.size())});
  }
  return shapes_.front();
}

void FitCache::answer(Shape& shape, std::uint32_t number, const std::string& name, const Ask& ask, FitView* view) {
  Word& known = shape.words[number];
  const auto& state = *states_[number];
  if (known.state == state) {
    ++figures_.remembered;
  } else {
    ++figures_.asked;
    NodeWord said = word_of_node(*state, ask.owner, ask.parts, ask.policy, ask.priority);
    known = Word{state, said.fits ? nullptr : std::make_shared<const std::string>(std::move(said.why)), said.score,
                 said.final};
  }
  if (known.why == nullptr) {
    view->nodes.push_back({name, known.score});
  } else {
    view->refused.push_back({name, known.why, known.final});
  }
  if (!state->holds.empty()) known.state = nullptr;  // who asks, and how important, changes what is seen there
}

FitView FitCache::fit(const std::shared_ptr<const ClusterState>& cluster, const Ask& ask) {
  see(cluster);
  Shape& shape = shape_of(ask);
  FitView view;
  view.nodes.reserve(ask.names.size());
  for (const std::string& name : ask.names) {
    const auto found = numbers_.find(std::string_view(name));
    if (found == numbers_.end()) {
      view.refused.push_back({name, no_card(), true});
    } else if (is_reserved_for(**states_[found->second], ask.owner)) {
      view.nodes.push_back({name, kReservedScore});
    } else {
      answer(shape, found->second, name, ask, &view);
    }
  }
  return view;
}

}  // namespace carve
