#include "core/cluster/cluster_state.h"

#include <algorithm>

namespace carve {

ClusterState::Names::Names(std::vector<std::string> names) : sorted(std::move(names)) {
  numbers.reserve(sorted.size());
  for (const auto& name : sorted) numbers.emplace(name, static_cast<Number>(numbers.size()));
}

std::optional<ClusterState::Number> ClusterState::number_of(std::string_view name) const {
  if (!names_) return std::nullopt;
  const auto found = names_->numbers.find(name);
  return found == names_->numbers.end() ? std::nullopt : std::optional(found->second);
}

void ClusterState::change(const Nodes& changes) {
  const bool same_names = std::all_of(changes.begin(), changes.end(), [this](const auto& one) {
    return contains(one.first) == (one.second != nullptr);
  });
  if (!same_names) return rebuild(changes);
  // Names are in order, and so are the pieces: each one that changes is copied once.
  std::shared_ptr<Piece> open;
  std::size_t which = pieces_.size();
  for (const auto& [name, state] : changes) {
    if (!state) continue;  // one that was not there has gone
    const Number number = *number_of(name);
    if (number / kPiece != which) {
      which = number / kPiece;
      open = std::make_shared<Piece>(*pieces_[which]);
      pieces_[which] = open;
    }
    (*open)[number % kPiece] = state;
  }
}

void ClusterState::rebuild(const Nodes& changes) {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<const Piece>> pieces;
  std::shared_ptr<Piece> open;
  const auto add = [&](const std::string& name, const Node& state) {
    if (names.size() % kPiece == 0) pieces.push_back(open = std::make_shared<Piece>());
    (*open)[names.size() % kPiece] = state;
    names.push_back(name);
  };
  auto change = changes.begin();
  const auto add_changes_before = [&](const std::string* limit) {
    for (; change != changes.end() && (limit == nullptr || change->first < *limit); ++change) {
      if (change->second) add(change->first, change->second);
    }
  };
  for (const auto& [name, state] : *this) {
    add_changes_before(&name);
    if (change != changes.end() && change->first == name) {
      if (change->second) add(name, change->second);
      ++change;
    } else {
      add(name, state);
    }
  }
  add_changes_before(nullptr);
  names_ = std::make_shared<const Names>(std::move(names));
  pieces_ = std::move(pieces);
}

}  // namespace carve
