#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/journal/journal.h"

// The bytes of the journal. A file is a header line followed by one line per transaction. A line is applied completely
// or not at all:
//
//   carve-journal 1 <first number> <crc>\n
//   <crc> <length> <number> <event>[\t<event>…]\n
//
// crc is CRC-32C in eight hex digits over the rest of the line (in the header: over what precedes it). length is the
// number of bytes after "<length> " up to the line end. Numbers increase by one, so that a lost line is detected.
// Events:
//
//   put <record JSON>    drop <owner kind> <owner uid>    count <name> <value>
//   note <slice> <text of slice_note_text.h>    note <slice>  (deletes it)
namespace carve::codec {

inline constexpr int kJournalVersion = 1;
/// The longest line that is written or read, including its end.
inline constexpr std::size_t kMaxJournalLine = 256 * 1024;

/// CRC-32C (Castagnoli), as iSCSI and ext4 use it.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// The header line of a file that begins with the transaction of that number.
[[nodiscard]] std::string journal_header(std::uint64_t first_number);

/// The line of one transaction, including its end.
///   errors  kInvalidArgument: no event, or an event with a name or text that would not be read back; kOutOfRange: the
///           line would be longer than kMaxJournalLine
[[nodiscard]] Result<std::string> journal_line(std::uint64_t number,
                                               const std::vector<JournalEvent>& events);

/// A complete compacted file: a header and one line per event of snapshot_of(state).
[[nodiscard]] Result<std::string> journal_snapshot(std::uint64_t first_number,
                                                   const JournalState& state,
                                                   std::uint64_t* next_number);

/// The contents of a file.
struct Replay {
  JournalState state;
  std::uint64_t next_number = 1;
  std::size_t good_bytes = 0;  // the file is complete up to here; the rest was being written at the crash
  std::size_t torn_bytes = 0;
  std::size_t lines = 0;  // transactions
};

/// Replays a file. A last line without its end, or with blocks that never reached the disk (NUL bytes), was never
/// acknowledged: it is left out and counted in torn_bytes. Any other fault is an error with its line and byte offset:
/// nothing is guessed and nothing is skipped.
///   errors  kDataLoss: damaged; kUnimplemented: another version of the file or a note; kInvalidArgument: not a journal
///   cost    O(text), no exception, no allocation beyond the state and one line
[[nodiscard]] Result<Replay> replay_journal(std::string_view text);

}  // namespace carve::codec
