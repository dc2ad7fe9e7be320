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

namespace carve::files {

/// The steps in which the journal accesses the disk. A test's hook is called before each of them.
enum class IoStep : std::uint8_t { kCreate, kWrite, kSync, kRename, kSyncFolder, kTruncate };

/// A hook's decision: continue (the default), fail with an errno, or write fewer bytes.
struct IoVerdict {
  int error = 0;
  std::optional<std::size_t> write_only;
};
/// Called with the step and, for kWrite, the number of bytes. A hook may also kill the process.
using IoHook = std::function<IoVerdict(IoStep step, std::size_t bytes)>;

/// Locks the journal against every agent until the descriptor is closed. Does not read it.
///   errors  kFailedPrecondition: an agent, whether it answers or not, has the lock (the text has its PID); kNotFound:
///   the
///           folder does not exist, so no agent ever had a journal there; the system's
[[nodiscard]] Result<Fd> lock_journal(const std::string& folder);

/// The end of an error text: how a person recovers from a journal in this folder that cannot be used, and what is lost.
[[nodiscard]] std::string journal_remedy(const std::string& folder);

/// The journal of one node: <folder>/journal. One process at a time writes it (flock on <folder>/lock, which contains
/// the PID of that process). A transaction for which append() returned success survives kill -9 and power loss; one for
/// which it returned an error did not happen. Not thread-safe. The journal makes no decisions and does not know the
/// ledger.
class JournalFile {
 public:
  /// Locks the folder (which must exist), replays the journal and cuts off a torn last line. Creates an empty journal
  /// if there is none. Removes the temporary file of an interrupted compaction.
  ///   errors  kFailedPrecondition: another process has the lock (the text has its PID); kDataLoss, kUnimplemented:
  ///   those
  ///           of replay_journal(), with journal_remedy(), and nothing on disk is changed; kPermissionDenied,
  ///           kResourceExhausted, …: the system's
  static Result<JournalFile> open(const std::string& folder, IoHook hook = {});

  JournalFile(JournalFile&&) noexcept = default;
  JournalFile& operator=(JournalFile&&) noexcept = default;

  /// Appends the events as one transaction and syncs it: all events or none, durable on return. An error leaves the
  /// state unchanged, and the next append starts again (after a failed sync with a new file, because the content of the
  /// disk is unknown then).
  ///   errors  those of apply_all() and journal_line(); kResourceExhausted: disk full; kPermissionDenied: read-only; …
  ///   cost    one write and one fdatasync; occasionally a compaction
  Result<void> append(const std::vector<JournalEvent>& events);

  /// Writes the whole state to a new file (create, sync, rename, sync of the folder). On an error the old file stays.
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
  std::uint64_t size_ = 0;        // length of the complete lines in the file
  std::uint64_t compact_at_ = 0;  // size from which append() compacts
  std::size_t torn_bytes_ = 0;
  bool suspect_ = false;  // the end of the file is unknown: the next append writes a new file first
};

}  // namespace carve::files
