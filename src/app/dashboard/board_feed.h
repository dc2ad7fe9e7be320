#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "codec/views/board.h"

namespace carve::dashboard {

/// A board of which each item carries the revision at which it last changed.
struct RevisedBoard {
  codec::Board board;
  std::uint64_t revision = 0;
  std::set<std::string> namespaces;  // that occur on it: each call asks for the caller's permissions in them
  std::uint64_t rest_revision = 0;  // at which waiting pods, events or the notice last changed

  struct Gone {
    std::uint64_t revision = 0;
    enum class Table : std::uint8_t { kNodes, kCards, kSlices } table = Table::kCards;
    std::string key;
  };
  std::deque<Gone> gone;            // items that no longer exist, oldest first
  std::uint64_t complete_from = 0;  // `gone` contains everything after this revision
};

/// What a change contains: everything, or no cards and slices, only the sums of the nodes.
enum class Detail : std::uint8_t { kCards, kNodes };

/// What changed after `since`. Everything, if `since` is 0, of another process, or too old.
[[nodiscard]] codec::BoardChange change_since(const RevisedBoard& now, std::uint64_t since,
                                              Detail detail = Detail::kCards);

/// The next board: items equal to those in `before` keep their revision, the others get the next one.
///   in   before: null for the first board; first: its revision
[[nodiscard]] RevisedBoard revised(const RevisedBoard* before, codec::Board next, std::uint64_t first);

/// The current board, shared by all readers. Nothing is read without a caller. Safe from any thread.
class BoardFeed {
 public:
  using Read = std::function<Result<codec::Board>()>;
  using Shared = std::shared_ptr<const RevisedBoard>;
  BoardFeed(Read read, const Clock& clock) : read_(std::move(read)), clock_(clock) {}

  /// A board that is at most kFresh old, or three times the time that a read takes: so reading never takes more than a
  /// quarter of the time. One caller reads; the others get the previous board meanwhile.
  ///   errors  those of `read`
  [[nodiscard]] Result<Shared> now() EXCLUDES(mutex_);
  static constexpr std::chrono::milliseconds kFresh{200};

 private:
  const Read read_;
  const Clock& clock_;
  Mutex mutex_;
  Condition changed_;
  bool reading_ GUARDED_BY(mutex_) = false;
  Shared last_ GUARDED_BY(mutex_);
  Error error_ GUARDED_BY(mutex_);
  bool failed_ GUARDED_BY(mutex_) = false;  // the last read failed, with error_
  Clock::Time next_ GUARDED_BY(mutex_){};   // when the next read is due
};

}  // namespace carve::dashboard
