#include "core/cluster/cluster_state.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace carve {
namespace {

/// Hashes eight characters at a time. The hash need not resist chosen names: an administrator who chooses colliding
/// node names only slows down the own cluster.
std::uint64_t hash_of(std::string_view name) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  std::uint64_t hash = name.size();
  const auto mix = [&](const char* from, std::size_t size) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, from, size);
    hash = (hash ^ eight) * kOdd;
    hash ^= hash >> 32;
  };
  std::size_t at = 0;
  for (; at + 8 <= name.size(); at += 8) mix(name.data() + at, 8);
  if (at < name.size() && at > 0) mix(name.data() + name.size() - 8, 8);
  if (at < name.size() && at == 0) mix(name.data(), name.size());
  hash *= kOdd;  // names that differ only in their last characters differ only in the upper half so far
  return hash ^ (hash >> 32);
}

}  // namespace

ClusterState::Names::Names(std::vector<std::string> names)
    : sorted(std::move(names)), slots(std::bit_ceil(2 * sorted.size() + 1)) {
  for (Number number = 0; number < sorted.size(); ++number) {
    const auto hash = hash_of(sorted[number]);
    auto at = hash & (slots.size() - 1);
    while (slots[at].after != 0) at = (at + 1) & (slots.size() - 1);
    slots[at] = {static_cast<std::uint32_t>(hash >> 32), number + 1};
  }
}

std::optional<ClusterState::Number> ClusterState::Names::find(std::string_view name) const {
  const auto hash = hash_of(name);
  const auto mark = static_cast<std::uint32_t>(hash >> 32);
  for (auto at = hash & (slots.size() - 1); slots[at].after != 0; at = (at + 1) & (slots.size() - 1)) {
    const Number number = slots[at].after - 1;
    if (slots[at].mark == mark && sorted[number] == name) return number;
  }
  return std::nullopt;
}

std::optional<ClusterState::Number> ClusterState::number_of(std::string_view name) const {
  return names_ ? names_->find(name) : std::nullopt;
}

void ClusterState::change(const Nodes& changes) {
  const bool same_names = std::all_of(changes.begin(), changes.end(), [this](const auto& one) {
    return contains(one.first) == (one.second != nullptr);
  });
  if (!same_names) return rebuild(changes);
  // Names are sorted, and so are the pieces: each piece that changes is copied once.
  std::shared_ptr<Piece> open;
  std::size_t which = pieces_.size();
  for (const auto& [name, state] : changes) {
    if (!state) continue;  // removes a node that was not there
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
