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
    // The nodes are numbered in the order of their names.
    if (best == nullptr || node.score > best->score || (node.score == best->score && node.number < best->number))
      best = &node;
  }
  return best;
}

/// Most changes of the cluster keep the names of the nodes and so their numbers. Then the cached answers stay valid.
void FitCache::use(const std::shared_ptr<const ClusterState>& cluster) {
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
    shapes_.push_front(Shape{ask.parts, ask.rules, ask.policy, std::vector<CachedAnswer>(seen_->size()),
                             std::vector<CachedAnswer>(seen_->size())});
  }
  return shapes_.front();
}

void FitCache::refresh(CachedAnswer* known, const std::shared_ptr<const NodeState>& state, const Ask& ask) {
  if (known->state == state) {
    ++figures_.remembered;
    return;
  }
  ++figures_.asked;
  NodeAnswer said = answer_of_node(*state, ask.owner, ask.parts, ask.policy, ask.priority);
  auto why = said.fits ? nullptr : std::make_shared<const std::string>(std::move(said.why));
  *known = CachedAnswer{state, std::move(why), said.score, said.final,
                        state->reserved.empty() && state->reservations.empty(), said.class_of_why};
}

void FitCache::add_to_view(const CachedAnswer& cached, const FittingView& node, FitView* view) {
  if (cached.why == nullptr) {
    view->nodes.push_back(node);
  } else {
    view->refused.push_back({node.node, cached.why, cached.final, cached.class_of_why});
  }
}

void FitCache::answer(Shape& shape, ClusterState::Number number, std::string_view name, const Ask& ask,
                      FitView* view) {
  CachedAnswer& known = shape.answers[number];
  const auto& state = seen_->node(number);
  refresh(&known, state, ask);
  add_to_view(known, {name, known.score, &state, number}, view);
  if (!state->reservations.empty()) known.state = nullptr;  // what a pod sees here depends on its owner and priority
}

std::optional<std::int64_t> FitCache::score_ahead(const std::shared_ptr<const ClusterState>& cluster,
                                                  ClusterState::Number number,
                                                  const std::shared_ptr<const NodeState>& ahead, const Ask& ask) {
  use(cluster);
  CachedAnswer& known = shape_of(ask).ahead[number];
  refresh(&known, ahead, ask);
  if (!ahead->reservations.empty()) known.state = nullptr;
  return known.why == nullptr ? std::optional(known.score) : std::nullopt;
}

FitView FitCache::fit(const std::shared_ptr<const ClusterState>& cluster, const Ask& ask) {
  use(cluster);
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
    if (const CachedAnswer& known = shape.answers[*number]; known.for_all && known.state == state) {
      ++figures_.remembered;
      add_to_view(known, {name, known.score, &state, *number}, &view);
    } else if (is_reserved_for(*state, ask.owner, ask.parts)) {
      view.nodes.push_back({name, kReservedScore, &state, *number});
    } else {
      answer(shape, *number, name, ask, &view);
    }
  }
  return view;
}

}  // namespace carve
