#include "app/agent/slice_store.h"

namespace carve::agent {
namespace {

/// The other slices of its owner.
std::vector<Slice> slices_beside(const SliceStore::State& state, const LiveSlice& slice) {
  std::vector<Slice> beside;
  for (const auto& [id, other] : state.slices) {
    if (other.holder == slice.holder && id != slice.id) {
      beside.insert(beside.end(), other.slices.begin(), other.slices.end());
    }
  }
  return beside;
}

}  // namespace

std::vector<Bytes> spare_of(const Ledger& ledger, const LiveSlice& slice) {
  std::vector<Bytes> spare;
  for (const auto& held : slice.slices) {
    const CardState* state = ledger.find(held.card);
    spare.push_back(state != nullptr ? state->card.memory - state->use.memory : Bytes());
  }
  return spare;
}

std::optional<LiveSlice> SliceStore::find(const std::string& id) const {
  const MutexLock lock(mutex_);
  const auto found = state_.slices.find(id);
  return found == state_.slices.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> SliceStore::ids_of(const std::function<bool(const LiveSlice&)>& wanted) const {
  std::vector<std::string> ids;
  const MutexLock lock(mutex_);
  for (const auto& [id, slice] : state_.slices) {
    if (wanted(slice)) ids.push_back(id);
  }
  return ids;
}

Result<void> SliceStore::put_card(Card card) {
  const MutexLock lock(mutex_);
  return state_.ledger.put_card(std::move(card));
}

bool SliceStore::remove_card(const CardId& card) {
  const MutexLock lock(mutex_);
  return state_.ledger.remove_card(card).has_value();
}

bool SliceStore::set_health(const CardId& card, const Health& health) {
  const MutexLock lock(mutex_);
  const CardState* state = state_.ledger.find(card);
  if (state == nullptr || state->card.health == health) return false;
  return state_.ledger.set_health(card, health).has_value();
}

void SliceStore::set_beyond(const CardId& card, Bytes bytes) {
  const MutexLock lock(mutex_);
  state_.ledger.set_beyond(card, bytes);
}

Result<std::vector<Slice>> SliceStore::reserve(const OwnerTurns::Turn&, const LiveSlice& wanted,
                                               const std::function<Result<std::vector<Slice>>(const State&)>& choose) {
  const MutexLock lock(mutex_);
  CARVE_TRY(auto slices, choose(state_));
  CARVE_TRY_VOID(state_.ledger.add(slices));
  state_.starting.emplace(wanted.id, wanted.uid);
  return slices;
}

Result<void> SliceStore::record(const OwnerTurns::Turn&, const LiveSlice& slice) {
  // The journal's record says what the owner holds here now: the parts that were prepared so far, a part of the
  // decision. It replaces the previous one of the owner.
  std::vector<Slice> all;
  {
    const MutexLock lock(mutex_);
    all = slices_beside(state_, slice);
  }
  all.insert(all.end(), slice.slices.begin(), slice.slices.end());
  CARVE_TRY(auto record, record_of(slice.epoch, all));
  return queue_.append({PutRecord{std::move(record)}, PutNote{slice.id, note_of(slice)}});
}

void SliceStore::enter(const OwnerTurns::Turn&, LiveSlice slice) {
  const MutexLock lock(mutex_);
  journal_error_.clear();
  state_.starting.erase(slice.id);
  std::string id = slice.id;
  state_.slices.emplace(std::move(id), std::move(slice));
}

void SliceStore::cancel(const OwnerTurns::Turn&, const LiveSlice& slice, bool recorded) {
  {
    const MutexLock lock(mutex_);
    static_cast<void>(state_.ledger.remove(slice.holder, slice.part));
    state_.starting.erase(slice.id);
    if (recorded) queue_.owe(events_without(slice));
  }
  freed_.notify_all();
  if (recorded) static_cast<void>(queue_.settle());  // on an error it stays owed
}

Result<void> SliceStore::note(const OwnerTurns::Turn&, const std::vector<LiveSlice>& slices) {
  std::vector<JournalEvent> events;
  for (const auto& slice : slices) events.emplace_back(PutNote{slice.id, note_of(slice)});
  return events.empty() ? Result<void>() : queue_.append(std::move(events));
}

Result<void> SliceStore::forget(const OwnerTurns::Turn&, const LiveSlice& slice) {
  std::vector<JournalEvent> events;
  {
    const MutexLock lock(mutex_);
    events = events_without(slice);
  }
  return judged(queue_.append(std::move(events)));
}

void SliceStore::remove(const OwnerTurns::Turn&, const LiveSlice& slice, bool owed) {
  {
    const MutexLock lock(mutex_);
    static_cast<void>(state_.ledger.remove(slice.holder, slice.part));
    // Under the lock: a reservation of the freed capacity is journaled after this removal.
    if (owed) queue_.owe(events_without(slice));
    state_.slices.erase(slice.id);
  }
  freed_.notify_all();
}

Result<void> SliceStore::settle() {
  if (!queue_.owes()) return {};
  return judged(queue_.settle());
}

Result<void> SliceStore::restore(LiveSlice slice) {
  const MutexLock lock(mutex_);
  CARVE_TRY_VOID(state_.ledger.add(slice.slices, Ledger::Admission::kRestored));
  std::string id = slice.id;
  state_.slices.emplace(std::move(id), std::move(slice));
  return {};
}

std::string SliceStore::journal_error() const {
  const MutexLock lock(mutex_);
  return journal_error_;
}

void SliceStore::wait_freed(std::chrono::milliseconds most) {
  MutexLock lock(mutex_);
  freed_.wait_for(lock, most);
}

std::vector<JournalEvent> SliceStore::events_without(const LiveSlice& slice) const {
  std::vector<JournalEvent> events;
  if (auto record = record_of(slice.epoch, slices_beside(state_, slice))) {
    events.emplace_back(PutRecord{std::move(*record)});
  } else {
    events.emplace_back(DropOwner{slice.holder});
  }
  events.emplace_back(DropNote{slice.id});
  return events;
}

/// Removals are retried until they succeed, so their error is the state of the journal.
Result<void> SliceStore::judged(Result<void> written) {
  const MutexLock lock(mutex_);
  journal_error_ = written ? std::string() : written.error().what;
  return written;
}

std::vector<LiveSlice> slices_in(const JournalState& journal) {
  std::map<std::pair<Owner, std::string>, LiveSlice> noted;
  for (const auto& [id, note] : journal.notes) {
    LiveSlice slice = slice_of(id, note);
    noted[{slice.holder, slice.part}] = std::move(slice);
  }
  std::vector<LiveSlice> slices;
  for (const auto& [owner, record] : journal.records) {
    for (const auto& part : record.parts) {
      const auto note = noted.find({owner, part.part});
      LiveSlice slice = note != noted.end() ? note->second : LiveSlice();
      slice.holder = owner;
      slice.part = part.part;
      slice.epoch = record.epoch;
      slice.slices = slices_of(owner, part);
      if (slice.id.empty()) slice.id = owner.uid;  // a note is written with its record; only an old journal has none
      slices.push_back(std::move(slice));
    }
  }
  return slices;
}

}  // namespace carve::agent
