#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
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
/// This node's own facts about a slice (its folder, its cgroup, the user who requested it): one line of text that only
/// its writer parses. Empty text deletes the note.
struct PutNote {
  std::string key;
  std::string text;
  friend bool operator==(const PutNote&, const PutNote&) = default;
};

using JournalEvent = std::variant<PutRecord, DropOwner, SetCounter, PutNote>;

inline constexpr std::size_t kMaxNoteText = 4096;

/// The state that results from all events so far.
struct JournalState {
  std::map<Owner, Record> records;
  std::map<std::string, std::uint64_t> counters;
  std::map<std::string, std::string> notes;
  friend bool operator==(const JournalState&, const JournalState&) = default;
};

/// Applies one event. A refused event changes nothing.
///   errors  kInvalidArgument: illegal record, name or note text; kNotFound: the owner to be dropped holds nothing;
///           kOutOfRange: the counter would decrease
Result<void> apply_event(JournalState& state, const JournalEvent& event);

/// Applies all events, or none of them.
Result<void> apply_all(JournalState& state, const std::vector<JournalEvent>& events);

/// Events that lead from the empty state to this state, for a compacted journal.
[[nodiscard]] std::vector<JournalEvent> snapshot_of(const JournalState& state);

/// Every slice of every record. The ledger is rebuilt from them.
[[nodiscard]] std::vector<Slice> slices_of(const JournalState& state);

}  // namespace carve
