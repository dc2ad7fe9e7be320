#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "core/journal/journal.h"

namespace carve {

/// The steps by which the journal touches the disk; a test's hook is asked before each of them.
enum class IoStep : std::uint8_t { kCreate, kWrite, kSync, kRename, kSyncFolder, kTruncate };

/// What a hook answers: nothing (go on), an errno to fail with instead, or fewer bytes to write than asked.
struct IoVerdict {
  int error = 0;
  std::optional<std::size_t> write_only;
};
/// Asked with the step and, for kWrite, the number of bytes. A hook may also kill the process.
using IoHook = std::function<IoVerdict(IoStep step, std::size_t bytes)>;

/// Keeps every agent from this journal, without reading it, until the descriptor is closed.
///   errors  kFailedPrecondition: an agent holds it (with its pid), whether it answers or not; kNotFound: there is no
///           such folder, so no agent ever kept a journal there; else the system's reason
[[nodiscard]] Result<Fd> lock_journal(const std::string& folder);

/// What a person does about a journal in this folder that cannot be used, and what it costs: for the end of an error.
[[nodiscard]] std::string journal_remedy(const std::string& folder);

/// The journal of one node: <folder>/journal, written by one process at a time (<folder>/lock, held by flock
/// and named with its holder's pid). What append() acknowledged survives kill -9 and power loss; what it
/// refused did not happen. Not thread-safe: it has one writer. It decides nothing and knows no ledger.
class JournalFile {
 public:
  /// Locks the folder (which must exist), replays the journal, cuts off a torn last line; makes an empty
  /// journal where there is none. A leftover of an interrupted compaction is removed.
  ///   errors  kFailedPrecondition: another process holds it (with its pid); kDataLoss, kUnimplemented: as
  ///           replay_journal(), with what helps; nothing on disk is changed then; kPermissionDenied,
  ///           kResourceExhausted, …: the system's reason
  static Result<JournalFile> open(const std::string& folder, IoHook hook = {});

  JournalFile(JournalFile&&) noexcept = default;
  JournalFile& operator=(JournalFile&&) noexcept = default;

  /// Appends the events as one transaction and syncs it: all of them or none, durable on return. An error
  /// leaves the state as it was; the next append tries afresh (after a failed sync by a new file, since what
  /// the disk then holds is not known).
  ///   errors  as apply_all() and journal_line(); kResourceExhausted: disk full; kPermissionDenied: read-only; …
  ///   cost    one write and one fdatasync; now and then a compaction
  Result<void> append(const std::vector<JournalEvent>& events);

  /// Writes the state afresh (new file, sync, rename, sync of the folder). On an error the old file is kept.
  Result<void> compact();

  [[nodiscard]] const JournalState& state() const { return state_; }
  /// Bytes of an unacknowledged last line that open() cut off.
  [[nodiscard]] std::size_t torn_bytes() const { return torn_bytes_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_; }

 private:
  JournalFile() = default;
  Result<void> load();
  Result<void> write_all(int fd, std::string_view text);
  Result<void> step(IoStep step, const std::string& context);

  std::string folder_;
  IoHook hook_;
  Fd lock_;
  Fd folder_fd_;
  Fd file_;
  JournalState state_;
  std::uint64_t next_number_ = 1;
  std::uint64_t size_ = 0;        // bytes of the file that are whole
  std::uint64_t compact_at_ = 0;  // size from which append() compacts
  std::size_t torn_bytes_ = 0;
  bool suspect_ = false;  // the file's end is not known: write a new file before the next append
};

}  // namespace carve
