#include "arbiter/lifelines.h"

#include <fcntl.h>
#include <sys/stat.h>
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

/// slice.entry.pid.start.kind; a slice's ID has no dots.
std::string name_of(const std::string& slice, const Lifelines::Lifeline& lifeline) {
  return fmt::format("{}.{}.{}.{}.{}", slice, lifeline.entry, lifeline.pid, lifeline.started,
                     lifeline.sent ? kSent : kNotSent);
}

template <typename Number>
bool read(const std::string& text, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<Lifelines::Lifeline> parse(const std::string& name, const std::string& slice) {
  std::istringstream words(name);
  std::string id, entry, pid, started, kind, more;
  std::getline(words, id, '.');
  std::getline(words, entry, '.');
  std::getline(words, pid, '.');
  std::getline(words, started, '.');
  std::getline(words, kind, '.');
  Lifelines::Lifeline found;
  found.name = name;
  found.sent = kind == kSent;
  if (id != slice || !read(entry, &found.entry) || !read(pid, &found.pid) || !read(started, &found.started) ||
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

Result<std::uint64_t> start_of(std::int32_t pid) {
  constexpr int kStart = 22;  // proc_pid_stat(5)
  const std::string path = fmt::format("/proc/{}/stat", pid);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return 0;
  char text[4096];
  const ssize_t length = file ? ::read(file.get(), text, sizeof text) : -1;
  if (length < 0 && file && errno == ESRCH) return 0;
  if (length < 0) return tl::unexpected(errno_error(errno, "read " + path));
  const std::string all(text, static_cast<std::size_t>(length));
  const std::size_t name_end = all.rfind(')');  // the name may contain spaces
  std::istringstream words(all.substr(name_end == std::string::npos ? all.size() : name_end + 1));
  std::string word;
  for (int field = 3; words >> word; ++field) {
    std::uint64_t start = 0;
    if (field == kStart && read(word, &start)) return start;
  }
  return fail(Code::kDataLoss, path + ": no start time");
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
                                            bool sent) const {
  CARVE_TRY(const std::uint64_t started, start_of(pid));
  Lifeline made{{}, entry, pid, started, sent && supported_};
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
  if (!lifeline.name.empty()) unlink((folder_ + "/" + lifeline.name).c_str());
}

std::vector<Lifelines::Lifeline> Lifelines::of(const std::string& slice) const {
  std::vector<Lifeline> found;
  const std::string start = slice + ".";
  for (const std::string& name : names_in(folder_)) {
    if (name.rfind(start, 0) != 0) continue;
    if (auto lifeline = parse(name, slice)) found.push_back(std::move(*lifeline));
  }
  return found;
}

}  // namespace carve::arbiter
