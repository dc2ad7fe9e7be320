#include "adapter/files/journal_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "codec/journal/journal_text.h"

namespace carve::files {
namespace {

constexpr char kFile[] = "journal";
constexpr char kNewFile[] = "journal.new";
constexpr char kLockFile[] = "lock";
constexpr std::uint64_t kCompactFloor = 1024 * 1024;
constexpr std::size_t kMaxFile = 256U << 20;  // a larger file cannot be Carve's journal

Result<std::string> read_all(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return tl::unexpected<Error>(errno_error(errno, "stat"));
  if (!S_ISREG(info.st_mode)) return fail(Code::kInvalidArgument, "is not a regular file");
  if (info.st_size > static_cast<off_t>(kMaxFile)) {
    return fail(Code::kOutOfRange, fmt::format("the file has {} bytes; at most {} are legal", info.st_size, kMaxFile));
  }
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected<Error>(errno_error(errno, "read"));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

/// The process that has the lock, from the PID in the lock file; "" when that cannot be read.
std::string holder_of(int lock) {
  char text[32] = {};
  const ssize_t n = ::pread(lock, text, sizeof text - 1, 0);
  std::string_view pid(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  pid = pid.substr(0, pid.find_first_not_of("0123456789"));
  return pid.empty() ? std::string() : fmt::format(" (process {})", pid);
}

Result<Fd> lock_folder(int folder_fd, const std::string& folder) {
  Fd lock(::openat(folder_fd, kLockFile, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    return tl::unexpected<Error>(errno_error(errno, fmt::format("{}/{}: open", folder, kLockFile)));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return fail(Code::kFailedPrecondition, fmt::format("{}: another carve agent{} uses the journal in this folder",
                                                         folder, holder_of(lock.get())));
    }
    return tl::unexpected<Error>(errno_error(errno, fmt::format("{}/{}: lock", folder, kLockFile)));
  }
  // The PID is only for the error text above. The lock itself is in the kernel, so a full disk does not matter.
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) == 0) {
    [[maybe_unused]] const auto n = ::pwrite(lock.get(), pid.data(), pid.size(), 0);
  }
  return lock;
}

}  // namespace

Result<Fd> lock_journal(const std::string& folder) {
  const Fd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd) return tl::unexpected<Error>(errno_error(errno, fmt::format("journal: {}", folder)));
  return lock_folder(folder_fd.get(), folder);
}

std::string journal_remedy(const std::string& folder) {
  return fmt::format(
      "; nothing was changed. To recover: `mv {0}/journal {0}/journal.damaged`, then start again. This ends the slices "
      "that still run and removes their container devices (drain a Kubernetes node first)",
      folder);
}

Result<JournalFile> JournalFile::open(const std::string& folder, IoHook hook) {
  JournalFile journal;
  journal.folder_ = folder;
  journal.hook_ = std::move(hook);
  journal.folder_fd_ = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!journal.folder_fd_) {
    return tl::unexpected<Error>(errno_error(errno, fmt::format("journal: {}", folder)));
  }
  CARVE_TRY(journal.lock_, lock_folder(journal.folder_fd_.get(), folder));
  CARVE_TRY_VOID(journal.load());
  return journal;
}

Result<void> JournalFile::load() {
  const int folder = folder_fd_.get();
  if (::unlinkat(folder, kNewFile, 0) != 0 && errno != ENOENT) {
    return tl::unexpected<Error>(
        errno_error(errno, fmt::format("journal: {}/{}: unlink", folder_, kNewFile)));
  }
  file_ = Fd(::openat(folder, kFile, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!file_) {
    if (errno == ENOENT) return compact();  // the first start: create an empty journal by rename
    return tl::unexpected<Error>(
        errno_error(errno, fmt::format("journal: {}/{}: open", folder_, kFile)));
  }
  auto text = read_all(file_.get());
  if (!text) return fail_in(fmt::format("{}/{}", folder_, kFile), text.error());
  auto replay = codec::replay_journal(*text);
  if (!replay) {
    Error error = replay.error();
    if (error.code == Code::kUnimplemented) error.what += "; start the version of Carve that wrote it, or";
    error.what += journal_remedy(folder_);
    return fail_in(fmt::format("{}/{}", folder_, kFile), std::move(error));
  }
  state_ = std::move(replay->state);
  next_number_ = replay->next_number;
  size_ = replay->good_bytes;
  torn_bytes_ = replay->torn_bytes;
  compact_at_ = std::max(kCompactFloor, 2 * size_);
  if (torn_bytes_ > 0) {
    CARVE_TRY_VOID(step(IoStep::kTruncate, "cut off the torn line"));
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
      return tl::unexpected<Error>(
          errno_error(errno, fmt::format("journal: {}/{}: truncate", folder_, kFile)));
    }
  }
  // Data that a crashed agent left only in the page cache is not durable yet.
  CARVE_TRY_VOID(step(IoStep::kSync, "sync"));
  if (::fdatasync(file_.get()) != 0) {
    return tl::unexpected<Error>(
        errno_error(errno, fmt::format("journal: {}/{}: sync", folder_, kFile)));
  }
  return {};
}

Result<void> JournalFile::step(IoStep step, const std::string& context) {
  if (!hook_) return {};
  const IoVerdict verdict = hook_(step, 0);
  if (verdict.error == 0) return {};
  return tl::unexpected<Error>(
      errno_error(verdict.error, fmt::format("journal: {}: {}", folder_, context)));
}

Result<void> JournalFile::write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    std::size_t want = text.size();
    int error = 0;
    if (hook_) {
      const IoVerdict verdict = hook_(IoStep::kWrite, want);
      error = verdict.error;
      want = std::min(want, verdict.write_only.value_or(want));
    }
    const ssize_t n = error == 0 ? ::write(fd, text.data(), want) : -1;
    if (n < 0 && error == 0) error = errno;
    if (n < 0 && error == EINTR) continue;
    if (n < 0) {
      return tl::unexpected<Error>(errno_error(error, fmt::format("journal: {}: write", folder_)));
    }
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> JournalFile::append(const std::vector<JournalEvent>& events) {
  // Refuse invalid events before the disk is accessed.
  JournalState next = state_;
  CARVE_TRY_VOID(apply_all(next, events));
  if (suspect_) CARVE_TRY_VOID(compact());
  CARVE_TRY(const std::string line, codec::journal_line(next_number_, events));
  if (auto written = write_all(file_.get(), line); !written) {
    const bool cut = step(IoStep::kTruncate, "truncate").has_value() &&
                     ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0;
    suspect_ = !cut;
    return written;
  }
  auto synced = step(IoStep::kSync, "sync");
  if (synced && ::fdatasync(file_.get()) != 0) {
    synced = tl::unexpected<Error>(errno_error(errno, fmt::format("journal: {}: sync", folder_)));
  }
  if (!synced) {
    // The line may be on the disk or not, and the next sync would not report it: remove it and start a new file.
    suspect_ = true;
    [[maybe_unused]] const int ignored = ::ftruncate(file_.get(), static_cast<off_t>(size_));
    return synced;
  }
  state_ = std::move(next);
  ++next_number_;
  size_ += line.size();
  if (size_ >= compact_at_) {
    // The transaction is already durable. A failed compaction is retried when the file has doubled in size.
    if (!compact()) compact_at_ = size_ * 2;
  }
  return {};
}

Result<void> JournalFile::compact() {
  std::uint64_t next_number = next_number_;
  CARVE_TRY(const std::string text, codec::journal_snapshot(next_number_, state_, &next_number));
  const int folder = folder_fd_.get();
  const auto failed = [&](int error, std::string_view what) {
    ::unlinkat(folder, kNewFile, 0);
    return tl::unexpected<Error>(
        errno_error(error, fmt::format("journal: {}/{}: {}", folder_, kNewFile, what)));
  };
  CARVE_TRY_VOID(step(IoStep::kCreate, "create"));
  Fd fresh(::openat(folder, kNewFile,
                    O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fresh) return failed(errno, "create");
  if (auto written = write_all(fresh.get(), text); !written) {
    ::unlinkat(folder, kNewFile, 0);
    return written;
  }
  CARVE_TRY_VOID(step(IoStep::kSync, "sync"));
  if (::fsync(fresh.get()) != 0) return failed(errno, "sync");
  CARVE_TRY_VOID(step(IoStep::kRename, "rename"));
  if (::renameat(folder, kNewFile, folder, kFile) != 0) return failed(errno, "rename");
  // From here on the new file has the name, regardless of the result of the folder's sync.
  file_ = std::move(fresh);
  next_number_ = next_number;
  size_ = text.size();
  compact_at_ = std::max(kCompactFloor, 2 * size_);
  suspect_ = true;
  CARVE_TRY_VOID(step(IoStep::kSyncFolder, "sync of the folder"));
  if (::fsync(folder) != 0) return failed(errno, "sync of the folder");
  suspect_ = false;
  return {};
}

}  // namespace carve::files
