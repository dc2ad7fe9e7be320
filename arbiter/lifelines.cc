#include "arbiter/lifelines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/core.h>

#include "arbiter/page_files.h"

namespace carve::arbiter {
namespace {

constexpr std::string_view kSent = "held";
constexpr std::string_view kNotSent = "process";

/// slice.entry.pid.process.kind; a slice's ID has no dots.
std::string name_of(const std::string& slice, const Lifelines::Lifeline& lifeline) {
  return fmt::format("{}.{}.{}.{}.{}", slice, lifeline.entry, lifeline.pid, lifeline.process,
                     lifeline.sent ? kSent : kNotSent);
}

template <typename Number>
bool read(const std::string& text, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

/// `slice`: the length of the slice's part of the name, with the dot.
std::optional<Lifelines::Lifeline> parse(const std::string& name, std::size_t slice) {
  std::istringstream words(name.substr(slice));
  std::string entry, pid, process, kind, more;
  std::getline(words, entry, '.');
  std::getline(words, pid, '.');
  std::getline(words, process, '.');
  std::getline(words, kind, '.');
  Lifelines::Lifeline found;
  found.name = name;
  found.sent = kind == kSent;
  if (!read(entry, &found.entry) || !read(pid, &found.pid) || !read(process, &found.process) ||
      (!found.sent && kind != kNotSent) || std::getline(words, more)) {
    return std::nullopt;
  }
  return found;
}

/// A write lease is only given on a file that no other open file description refers to, not even through a mapping.
///   source  fcntl(2), F_SETLEASE
Lifelines::State state_of(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return errno == ENOENT ? Lifelines::State::kFree : Lifelines::State::kUnknown;
  if (::fcntl(file.get(), F_SETLEASE, F_WRLCK) == 0) return Lifelines::State::kFree;
  return errno == EAGAIN ? Lifelines::State::kHeld : Lifelines::State::kUnknown;
}

Result<void> make_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return tl::unexpected(errno_error(errno, "create " + path));
  return {};
}

}  // namespace

std::uint64_t identity_of(const Fd& pidfd) {
  constexpr decltype(statfs::f_type) kPidFs = 0x50494446;  // PID_FS_MAGIC, Linux 6.9
  struct statfs system = {};
  struct stat info = {};
  if (!pidfd || fstatfs(pidfd.get(), &system) != 0 || system.f_type != kPidFs) return 0;
  return fstat(pidfd.get(), &info) == 0 ? info.st_ino : 0;
}

Result<Lifelines> Lifelines::open(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected(errno_error(errno, "create " + folder));
  }
  Lifelines lines;
  lines.folder_ = folder;
  CARVE_TRY(lines.read_only_, read_only_clone(folder));
  // A tenant that opens a file in the moment of a lease would otherwise end this process.
  std::signal(SIGIO, SIG_IGN);
  const std::string test = folder + "/.test";
  CARVE_TRY_VOID(make_file(test));
  const Fd reader(openat(lines.read_only_.get(), ".test", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  lines.supported_ = reader && state_of(test) == State::kHeld;
  unlink(test.c_str());
  return lines;
}

Result<Lifelines::Lifeline> Lifelines::make(const std::string& slice, std::uint32_t entry, std::int32_t pid,
                                            const Fd& pidfd, bool sent) const {
  Lifeline made{{}, entry, pid, identity_of(pidfd), sent && supported_};
  made.name = name_of(slice, made);
  CARVE_TRY_VOID(make_file(folder_ + "/" + made.name));
  return made;
}

Result<Fd> Lifelines::tenant_descriptor(const Lifeline& lifeline) const {
  Fd fd(openat(read_only_.get(), lifeline.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return tl::unexpected(errno_error(errno, "open lifeline " + lifeline.name + " read-only"));
  return fd;
}

Lifelines::State Lifelines::state(const Lifeline& lifeline) const { return state_of(folder_ + "/" + lifeline.name); }

void Lifelines::remove(const Lifeline& lifeline) const {
  unlink((folder_ + "/" + lifeline.name).c_str());
}

void Lifelines::remove_all(const std::string& slice) const {
  for (const Lifeline& lifeline : of(slice)) remove(lifeline);
}

std::vector<Lifelines::Lifeline> Lifelines::of(const std::string& slice) const {
  std::vector<Lifeline> found;
  const std::string start = slice + ".";
  for (const std::string& name : names_in(folder_)) {
    if (name.rfind(start, 0) != 0) continue;
    if (auto lifeline = parse(name, start.size())) found.push_back(std::move(*lifeline));
  }
  return found;
}

}  // namespace carve::arbiter
