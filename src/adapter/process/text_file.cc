#include "adapter/process/text_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/fd.h"

namespace carve::process {
namespace {

Result<void> write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "write " + path));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> sync_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return tl::unexpected(errno_error(errno, "open " + folder));
  // Some file systems cannot sync a folder (EINVAL); then the rename cannot be made more durable.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return tl::unexpected(errno_error(errno, "sync " + folder));
  }
  return {};
}

/// Syncs, renames to `path` and syncs the folder. The temporary file does not remain in any case.
Result<void> finish(const Fd& fd, const std::string& temp, const std::string& path, mode_t mode) {
  Result<void> done;
  if (::fchmod(fd.get(), mode) != 0) {
    done = tl::unexpected(errno_error(errno, "chmod " + temp));
  } else if (::fsync(fd.get()) != 0) {
    done = tl::unexpected(errno_error(errno, "sync " + temp));
  } else if (::rename(temp.c_str(), path.c_str()) != 0) {
    done = tl::unexpected(errno_error(errno, "rename to " + path));
  }
  if (!done) {
    ::unlink(temp.c_str());
    return done;
  }
  return sync_folder(path);
}

Fd create_temp(const std::string& path, std::string* temp) {
  *temp = path + "." + std::to_string(::getpid()) + ".tmp";
  ::unlink(temp->c_str());
  return Fd(::open(temp->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

}  // namespace

Result<std::string> read_text(const std::string& path, std::size_t limit) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
  std::string text;
  char buffer[4096];
  while (text.size() < limit) {
    const ssize_t n = ::read(fd.get(), buffer, std::min(sizeof(buffer), limit - text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "read " + path));
    if (n == 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

Result<void> write_text(const std::string& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
  const ssize_t n = ::write(fd.get(), text.data(), text.size());
  if (n < 0) return tl::unexpected(errno_error(errno, "write " + path));
  return {};
}

Result<void> replace_file(const std::string& path, std::string_view text, mode_t mode) {
  std::string temp;
  const Fd fd = create_temp(path, &temp);
  if (!fd) return tl::unexpected(errno_error(errno, "create " + temp));
  if (auto wrote = write_all(fd.get(), text, temp); !wrote) {
    ::unlink(temp.c_str());
    return wrote;
  }
  return finish(fd, temp, path, mode);
}

Result<void> make_folders(const std::string& path, mode_t mode) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') continue;
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) == 0) {
      ::chmod(part.c_str(), mode);
      continue;
    }
    const int err = errno;
    struct stat info = {};
    if (::stat(part.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) continue;
      return fail(Code::kFailedPrecondition, part + ": exists and is not a folder");
    }
    return tl::unexpected(errno_error(err, "create folder " + part));
  }
  return {};
}

Result<std::vector<std::string>> list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), ::closedir);
  if (!dir) return tl::unexpected(errno_error(errno, "open folder " + path));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> copy_file(const std::string& from, const std::string& to, mode_t mode) {
  const Fd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in) return tl::unexpected(errno_error(errno, "open " + from));
  std::string temp;
  const Fd out = create_temp(to, &temp);
  if (!out) return tl::unexpected(errno_error(errno, "create " + temp));
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(in.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    Result<void> wrote;
    if (n < 0) wrote = tl::unexpected(errno_error(errno, "read " + from));
    if (n > 0) wrote = write_all(out.get(), {buffer, static_cast<std::size_t>(n)}, temp);
    if (!wrote) {
      ::unlink(temp.c_str());
      return wrote;
    }
    if (n == 0) break;
  }
  return finish(out, temp, to, mode);
}

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return ::realpath(path.c_str(), resolved) == nullptr ? std::string() : std::string(resolved);
}

std::string command_of(pid_t pid) {
  auto text = read_text("/proc/" + std::to_string(pid) + "/comm", 64);
  if (!text) return "?";
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return *text;
}

}  // namespace carve::process
