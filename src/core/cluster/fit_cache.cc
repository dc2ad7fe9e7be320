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
    // Numbers have the order of the names.
    if (best == nullptr || node.score > best->score || (node.score == best->score && node.number < best->number))
      best = &node;
  }
  return best;
}

/// Most changes leave the names and therefore the numbers as they are.
void FitCache::see(const std::shared_ptr<const ClusterState>& cluster) {
  if (cluster == seen_) return;
  if (seen_ == nullptr || !seen_->same_names(*cluster)) shapes_.clear();
  seen_ = cluster;
}

FitCache::Shape& FitCache::shape_of(const Ask& ask) {
  const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    return shape.rules == ask.rules && shape.policy == ask.policy && shape.parts == ask.parts;
  });
  if (found != shapes_.end()) {
    shapes_.splice(shapes_.begin(), shapes_, found);
  } else {
    if (shapes_.size() == kShapes) shapes_.pop_back();
    shapes_.push_front(Shape{ask.parts, ask.rules, ask.policy, std::vector<Word>(seen_->size()),
                             std::vector<Word>(seen_->size())});
  }
  return shapes_.front();
}

void FitCache::ask_again(Word* known, const std::shared_ptr<const NodeState>& state, const Ask& ask) {
  if (known->state == state) {
    ++figures_.remembered;
    return;
  }
  ++figures_.asked;
  NodeWord said = word_of_node(*state, ask.owner, ask.parts, ask.policy, ask.priority);
  *known = Word{state, said.fits ? nullptr : std::make_shared<const std::string>(std::move(said.why)), said.score,
                said.final, state->reserved.empty() && state->reservations.empty(), said.class_of_why};
}

void FitCache::say(const Word& word, const FittingView& node, FitView* view) {
  if (word.why == nullptr) {
    view->nodes.push_back(node);
  } else {
    view->refused.push_back({node.node, word.why, word.final, word.class_of_why});
  }
}

void FitCache::answer(Shape& shape, ClusterState::Number number, std::string_view name, const Ask& ask,
                      FitView* view) {
  Word& known = shape.words[number];
  const auto& state = seen_->node(number);
  ask_again(&known, state, ask);
  say(known, {name, known.score, &state, number}, view);
  if (!state->reservations.empty()) known.state = nullptr;  // what a pod sees here depends on its owner and priority
}

std::optional<std::int64_t> FitCache::score_ahead(const std::shared_ptr<const ClusterState>& cluster,
                                                  ClusterState::Number number,
                                                  const std::shared_ptr<const NodeState>& ahead, const Ask& ask) {
  see(cluster);
  Word& known = shape_of(ask).ahead[number];
  ask_again(&known, ahead, ask);
  if (!ahead->reservations.empty()) known.state = nullptr;
  return known.why == nullptr ? std::optional(known.score) : std::nullopt;
}

FitView FitCache::fit(const std::shared_ptr<const ClusterState>& cluster, const Ask& ask) {
  see(cluster);
  Shape& shape = shape_of(ask);
  FitView view;
  view.nodes.reserve(ask.names.size());
  for (const std::string_view name : ask.names) {
    const auto number = seen_->number_of(name);
    if (!number) {
      view.refused.push_back({name, no_card(), true, UnschedulableReason::kNoCard});
      continue;
    }
    const auto& state = seen_->node(*number);
    // The common case: the node itself is not read.
    if (const Word& known = shape.words[*number]; known.for_all && known.state == state) {
      ++figures_.remembered;
      say(known, {name, known.score, &state, *number}, &view);
    } else if (is_reserved_for(*state, ask.owner, ask.parts)) {
      view.nodes.push_back({name, kReservedScore, &state, *number});
    } else {
      answer(shape, *number, name, ask, &view);
    }
  }
  return view;
}

}  // namespace carve
