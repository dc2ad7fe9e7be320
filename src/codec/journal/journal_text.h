#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/journal/journal.h"

// The journal's bytes. A file is a header line and then one line per transaction, each of which stands or
// falls as a whole:
//
//   carve-journal 1 <first number> <crc>\n
//   <crc> <length> <number> <event>[\t<event>…]\n
//
// crc is CRC-32C in eight hex digits over what comes after it (in the header: before it); length counts the
// bytes after "<length> " up to the line's end; numbers go up by one, so that a lost line is noticed. Events:
//
//   put <record JSON>    drop <owner kind> <owner uid>    count <name> <value>    note <key> [<text>]
namespace carve::codec {

inline constexpr int kJournalVersion = 1;
/// The longest line that is written or read, its end included.
inline constexpr std::size_t kMaxJournalLine = 256 * 1024;

/// CRC-32C (Castagnoli), as iSCSI and ext4 use it.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// The header line of a file whose first transaction has that number.
[[nodiscard]] std::string journal_header(std::uint64_t first_number);

/// One transaction's line, its end included.
///   errors  kInvalidArgument: no event, or one whose names or text would not be read back; kOutOfRange: the
///           line would be longer than kMaxJournalLine
[[nodiscard]] Result<std::string> journal_line(std::uint64_t number,
                                               const std::vector<JournalEvent>& events);

/// A whole compacted file: header and one line per event of snapshot_of(state).
[[nodiscard]] Result<std::string> journal_snapshot(std::uint64_t first_number,
                                                   const JournalState& state,
                                                   std::uint64_t* next_number);

/// What a file's bytes say.
struct Replay {
  JournalState state;
  std::uint64_t next_number = 1;
  std::size_t good_bytes =
      0;  // the file up to here is whole; what follows was being written at the crash
  std::size_t torn_bytes = 0;
  std::size_t lines = 0;  // transactions
};

/// Replays a file. A last line without its end, or with blocks that never reached the disk (NUL bytes), was
/// never acknowledged: it is left out and counted in torn_bytes. Anything else that is wrong is an error,
/// with the line and the byte where it stands: nothing is guessed and nothing skipped.
///   errors  kDataLoss: damaged; kUnimplemented: another version; kInvalidArgument: not a journal
///   cost    O(text), no exception, no allocation beyond the state and one line
[[nodiscard]] Result<Replay> replay_journal(std::string_view text);

}  // namespace carve::codec
