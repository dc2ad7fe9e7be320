#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "core/model/record.h"

// What a node's journal says, as values: events, and the state that they add up to. The bytes are
// codec/journal/, the file is adapter/files/. The journal is what this node did about the decisions; its
// records are the same type as the decisions.
namespace carve {

/// All that the record's owner holds from now on; replaces what the owner held before.
struct PutRecord {
  Record record;
  friend bool operator==(const PutRecord&, const PutRecord&) = default;
};
/// The owner holds nothing any more.
struct DropOwner {
  Owner owner;
  friend bool operator==(const DropOwner&, const DropOwner&) = default;
};
/// A counter that never goes down (names that must never be used twice).
struct SetCounter {
  std::string name;
  std::uint64_t value = 0;
  friend bool operator==(const SetCounter&, const SetCounter&) = default;
};
/// This node's own facts about a slice (its folder, cgroup, who asked): one line of text that only its writer
/// understands. Empty text drops the note.
struct PutNote {
  std::string key;
  std::string text;
  friend bool operator==(const PutNote&, const PutNote&) = default;
};

using JournalEvent = std::variant<PutRecord, DropOwner, SetCounter, PutNote>;

inline constexpr std::size_t kMaxNoteText = 4096;

/// What all events so far add up to.
struct JournalState {
  std::map<Owner, Record> records;
  std::map<std::string, std::uint64_t> counters;
  std::map<std::string, std::string> notes;
  friend bool operator==(const JournalState&, const JournalState&) = default;
};

/// Applies one event. A refused event changes nothing.
///   errors  kInvalidArgument: illegal record, name or note text; kNotFound: the owner to be dropped holds
///           nothing; kOutOfRange: the counter would go down
Result<void> apply_event(JournalState& state, const JournalEvent& event);

/// Applies all events, or none of them.
Result<void> apply_all(JournalState& state, const std::vector<JournalEvent>& events);

/// Events that lead from the empty state to this one, for a compacted journal.
[[nodiscard]] std::vector<JournalEvent> snapshot_of(const JournalState& state);

/// Every slice of every record: what the ledger is rebuilt from.
[[nodiscard]] std::vector<Slice> slices_of(const JournalState& state);

}  // namespace carve
