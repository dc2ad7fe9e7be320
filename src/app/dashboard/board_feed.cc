#include "app/dashboard/board_feed.h"

#include <algorithm>
#include <unordered_map>

#include "app/dashboard/viewer.h"

namespace carve::dashboard {
namespace {

using codec::BoardCard;
using codec::BoardNode;
using codec::BoardSlice;
using Gone = RevisedBoard::Gone;

constexpr std::size_t kMostGone = 20'000;

const std::string& key_of(const BoardNode& node) { return node.name; }
const std::string& key_of(const BoardCard& card) { return card.uuid; }
const std::string& key_of(const BoardSlice& slice) { return slice.id; }

/// Gives each item of `next` its revision. True: an item is new, changed or gone.
template <class Item>
bool carry(const std::vector<Item>& before, std::uint64_t revision, Gone::Table table, std::vector<Item>* next,
           std::deque<Gone>* gone) {
  std::unordered_map<std::string_view, const Item*> old;
  old.reserve(before.size());
  for (const auto& item : before) old.emplace(key_of(item), &item);
  bool changed = false;
  for (auto& item : *next) {
    const auto found = old.find(key_of(item));
    item.revision = found == old.end() ? revision : found->second->revision;
    if (found != old.end() && item == *found->second) {
      old.erase(found);
      continue;
    }
    if (found != old.end()) old.erase(found);
    item.revision = revision;
    changed = true;
  }
  for (const auto& [key, item] : old) gone->push_back({revision, table, std::string(key)});
  return changed || !old.empty();
}

bool same_rest(const codec::Board& a, const codec::Board& b) {
  const auto same_pod = [](const codec::WaitingPod& x, const codec::WaitingPod& y) {
    return x.namespace_name == y.namespace_name && x.name == y.name && x.asks == y.asks && x.why == y.why;
  };
  return a.events == b.events && a.notice == b.notice &&
         std::equal(a.waiting.begin(), a.waiting.end(), b.waiting.begin(), b.waiting.end(), same_pod);
}

template <class Item>
void changed_after(const std::vector<Item>& items, std::uint64_t since, std::vector<const Item*>* into) {
  for (const auto& item : items) {
    if (item.revision > since) into->push_back(&item);
  }
}

}  // namespace

RevisedBoard revised(const RevisedBoard* before, codec::Board next, std::uint64_t first) {
  RevisedBoard now;
  static const RevisedBoard kNothing;
  const RevisedBoard& old = before == nullptr ? kNothing : *before;
  const std::uint64_t revision = before == nullptr ? first : old.revision + 1;
  now.gone = old.gone;
  now.complete_from = before == nullptr ? first - 1 : old.complete_from;
  bool changed = carry(old.board.nodes, revision, Gone::Table::kNodes, &next.nodes, &now.gone);
  changed |= carry(old.board.cards, revision, Gone::Table::kCards, &next.cards, &now.gone);
  changed |= carry(old.board.slices, revision, Gone::Table::kSlices, &next.slices, &now.gone);
  while (now.gone.size() > kMostGone) {
    now.complete_from = now.gone.front().revision;
    now.gone.pop_front();
  }
  const bool rest = before == nullptr || !same_rest(old.board, next);
  now.rest_revision = rest ? revision : old.rest_revision;
  now.revision = changed || rest ? revision : old.revision;
  now.namespaces = namespaces_on(next);
  now.board = std::move(next);
  return now;
}

codec::BoardChange change_since(const RevisedBoard& now, std::uint64_t since, Detail detail) {
  codec::BoardChange change;
  change.revision = now.revision;
  change.complete = since < now.complete_from || since > now.revision;
  if (change.complete) since = 0;
  changed_after(now.board.nodes, since, &change.nodes);
  if (detail == Detail::kCards) {
    changed_after(now.board.cards, since, &change.cards);
    changed_after(now.board.slices, since, &change.slices);
  }
  change.rest = now.rest_revision > since;
  if (change.complete) return change;
  // An item that is gone and back is in the tables. The reader deletes first and then inserts.
  for (const auto& gone : now.gone) {
    if (gone.revision <= since) continue;
    if (detail == Detail::kNodes && gone.table != Gone::Table::kNodes) continue;
    auto& keys = gone.table == Gone::Table::kNodes   ? change.gone_nodes
                 : gone.table == Gone::Table::kCards ? change.gone_cards
                                                     : change.gone_slices;
    keys.push_back(gone.key);
  }
  return change;
}

Result<BoardFeed::Shared> BoardFeed::now() {
  MutexLock lock(mutex_);
  while (reading_ && last_ == nullptr) changed_.wait(lock);
  if (!reading_ && clock_.now() >= next_) {
    reading_ = true;
    const Shared before = last_;
    lock.unlock();
    const auto begin = clock_.now();
    auto board = read_();
    Shared after;
    if (board) {
      const auto first = static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::milliseconds>(clock_.wall_now().time_since_epoch()).count());
      after = std::make_shared<const RevisedBoard>(revised(before.get(), std::move(*board), first));
    }
    const auto end = clock_.now();
    lock.lock();
    failed_ = !board;
    if (board)
      last_ = after;
    else
      error_ = board.error();
    next_ = end + std::max<Clock::Duration>(kFresh, 3 * (end - begin));
    reading_ = false;
    changed_.notify_all();
  }
  if (failed_ || last_ == nullptr) return tl::unexpected(error_);
  return last_;
}

}  // namespace carve::dashboard
