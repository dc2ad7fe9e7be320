#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/agent/journal_queue.h"
#include "app/agent/owner_turns.h"
#include "app/agent/slice_table.h"
#include "base/mutex.h"
#include "core/ledger/ledger.h"
#include "port/node_journal.h"

namespace carve::agent {

/// The slices of this machine: the ledger, the known state of each slice, and the journal. The only writer of all
/// three. A change reserves its capacity in the ledger before it is journaled, so the ledger never promises more than
/// the cards while changes are in flight. The removal of a slice is journaled before any later reservation, so the
/// journal never promises more either. Safe from any thread. Only the journal's calls (record, cancel, note, end,
/// settle) wait for the disk, without the lock.
class SliceStore {
 public:
  /// What the lock protects. Readers get it by reference and must not keep the reference.
  struct State {
    Ledger ledger;
    std::map<std::string, LiveSlice> slices;        // by ID; a slice is entered when all of it exists
    std::map<std::string, std::uint32_t> starting;  // by ID: the user of each slice that is reserved, not entered yet
  };
  explicit SliceStore(NodeJournal& journal) : journal_(journal) {}

  /// Calls `read(state)` under the lock and returns its result.
  template <typename Read>
  auto read(Read&& read) const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return std::forward<Read>(read)(state_);
  }
  /// Calls `change(slice)` under the lock. For the figures that the second line keeps about a slice, and for fields
  /// that only the caller with the owner's turn changes. False: no such slice.
  template <typename Change>
  bool change(const std::string& id, Change&& change) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = state_.slices.find(id);
    if (found == state_.slices.end()) return false;
    std::forward<Change>(change)(found->second);
    return true;
  }
  [[nodiscard]] std::optional<LiveSlice> find(const std::string& id) const EXCLUDES(mutex_);
  /// The IDs of the slices for which `wanted` is true.
  [[nodiscard]] std::vector<std::string> ids_of(const std::function<bool(const LiveSlice&)>& wanted) const
      EXCLUDES(mutex_);

  /// Adds or updates a card; errors as Ledger::put_card().
  Result<void> put_card(Card card) EXCLUDES(mutex_);
  /// False: the card has slices or is unknown.
  bool remove_card(const CardId& card) EXCLUDES(mutex_);
  /// True: the verdict on the card has changed.
  bool set_health(const CardId& card, const Health& health) EXCLUDES(mutex_);
  /// What the card's slices hold above their limits: Ledger::set_beyond().
  void set_beyond(const CardId& card, Bytes bytes) EXCLUDES(mutex_);

  /// Chooses the slices of `wanted` and enters them in the ledger, in one step. enter() or cancel() follows.
  ///   choose   returns the slices to reserve, or an error; no input or output
  ///   errors   those of `choose` and of Ledger::add()
  Result<std::vector<Slice>> reserve(const OwnerTurns::Turn& turn, const LiveSlice& wanted,
                                     const std::function<Result<std::vector<Slice>>(const State&)>& choose)
      EXCLUDES(mutex_);
  /// Journals the reserved slice with its owner's other slices.
  Result<void> record(const OwnerTurns::Turn& turn, const LiveSlice& slice) EXCLUDES(mutex_);
  /// Enters a slice that is reserved, journaled and set up.
  void enter(const OwnerTurns::Turn& turn, LiveSlice slice) EXCLUDES(mutex_);
  /// Frees the reservation of a change that failed. `recorded`: record() succeeded.
  void cancel(const OwnerTurns::Turn& turn, const LiveSlice& slice, bool recorded) EXCLUDES(mutex_);
  /// Writes the note of an existing slice.
  Result<void> note(const OwnerTurns::Turn& turn, const std::vector<LiveSlice>& slices);
  /// Removes the slice from the journal only. The slice keeps its place in the ledger until remove().
  Result<void> forget(const OwnerTurns::Turn& turn, const LiveSlice& slice) EXCLUDES(mutex_);
  /// Removes the slice from ledger and table. `owed`: the slice is still in the journal, and its removal there is
  /// written before anything else; see settle().
  void remove(const OwnerTurns::Turn& turn, const LiveSlice& slice, bool owed) EXCLUDES(mutex_);
  /// Writes removals that could not be written yet.
  Result<void> settle() EXCLUDES(mutex_);

  /// At the start: a slice of the journal, with its place in the ledger.
  ///   errors  those of Ledger::add()
  Result<void> restore(LiveSlice slice) EXCLUDES(mutex_);
  /// The journal as it is on the disk. At the start only, before any other thread runs.
  [[nodiscard]] const JournalState& journal_at_start() const { return journal_.state(); }
  /// For SliceNames, which keeps its counter there.
  [[nodiscard]] JournalQueue& journal() { return queue_; }
  /// Why the last removal could not be written; empty: none failed.
  [[nodiscard]] std::string journal_error() const EXCLUDES(mutex_);

  /// Waits until capacity may have been freed, at most `most`.
  void wait_freed(std::chrono::milliseconds most) EXCLUDES(mutex_);
  void wake_waiting() { freed_.notify_all(); }

 private:
  [[nodiscard]] std::vector<JournalEvent> events_without(const LiveSlice& slice) const REQUIRES(mutex_);
  Result<void> judged(Result<void> written) EXCLUDES(mutex_);

  NodeJournal& journal_;
  JournalQueue queue_{journal_};
  mutable Mutex mutex_;
  Condition freed_;
  State state_ GUARDED_BY(mutex_);
  std::string journal_error_ GUARDED_BY(mutex_);
};

/// Per card of the slice, the memory that the ledger has promised to no slice.
[[nodiscard]] std::vector<Bytes> spare_of(const Ledger& ledger, const LiveSlice& slice);

/// Every part of every record as a slice, with the fields of its note.
[[nodiscard]] std::vector<LiveSlice> slices_in(const JournalState& journal);

}  // namespace carve::agent
