#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "core/journal/slice_note.h"
#include "core/model/record.h"

// The contents of a node's journal as values: events, and the state that results from them. codec/journal/ has the
// bytes, adapter/files/ has the file. The journal says what this node did about the decisions; its records have the
// same type as the decisions.
namespace carve {

/// The owner holds exactly the slices of this record from now on; replaces its earlier record.
struct PutRecord {
  Record record;
  friend bool operator==(const PutRecord&, const PutRecord&) = default;
};
/// The owner holds nothing any more.
struct DropOwner {
  Owner owner;
  friend bool operator==(const DropOwner&, const DropOwner&) = default;
};
/// A counter that never decreases (for names that must not be used twice).
struct SetCounter {
  std::string name;
  std::uint64_t value = 0;
  friend bool operator==(const SetCounter&, const SetCounter&) = default;
};
/// This node's own facts about a slice; replaces the slice's earlier note.
struct PutNote {
  std::string slice;  // its ID on this node
  SliceNote note;
  friend bool operator==(const PutNote&, const PutNote&) = default;
};
/// Deletes the slice's note. Success when it has none.
struct DropNote {
  std::string slice;
  friend bool operator==(const DropNote&, const DropNote&) = default;
};

using JournalEvent = std::variant<PutRecord, DropOwner, SetCounter, PutNote, DropNote>;

/// The state that results from all events so far.
struct JournalState {
  std::map<Owner, Record> records;
  std::map<std::string, std::uint64_t> counters;
  std::map<std::string, SliceNote> notes;  // by ID of the slice
  friend bool operator==(const JournalState&, const JournalState&) = default;
};

/// Applies one event. A refused event changes nothing.
///   errors  kInvalidArgument: illegal record, name or note; kNotFound: the owner to be dropped holds nothing;
///           kOutOfRange: the counter would decrease
Result<void> apply_event(JournalState& state, const JournalEvent& event);

/// Applies all events, or none of them.
Result<void> apply_all(JournalState& state, const std::vector<JournalEvent>& events);

/// Events that lead from the empty state to this state, for a compacted journal.
[[nodiscard]] std::vector<JournalEvent> snapshot_of(const JournalState& state);

/// Every slice of every record. The ledger is rebuilt from them.
[[nodiscard]] std::vector<Slice> slices_of(const JournalState& state);

}  // namespace carve
