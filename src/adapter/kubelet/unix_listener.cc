#include "adapter/kubelet/unix_listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "adapter/process/text_file.h"
#include "base/unix_address.h"

namespace carve::kubelet {
namespace {

// The kubelet's plugin watcher ignores names with a leading dot. The name is short because socket paths are limited.
constexpr std::string_view kHidden = ".carve-";

/// 0, or connect()'s errno.
int dial(const Fd& fd, const sockaddr_un& address) {
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

/// A file that is not a socket also refuses connect(). A full backlog (EAGAIN) means that a process listens.
bool is_dead_socket(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const auto address = unix_address(path);
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return address && fd && dial(fd, *address) == ECONNREFUSED;
}

/// Locks the folder until the descriptor is closed; empty: the file system cannot lock folders.
Fd locked(const std::string& folder) {
  Fd fd(::open((folder + "/").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  while (fd && ::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) fd.reset();
  }
  return fd;
}

}  // namespace

void remove_dead_sockets(const std::string& folder, std::string_view begin, std::string_view end) {
  const auto names = process::list_folder(folder);
  if (!names) return;
  for (const auto& name : *names) {
    if (!name.starts_with(begin) || !name.ends_with(end) || name.size() < begin.size() + end.size()) continue;
    const std::string path = folder + "/" + name;
    if (is_dead_socket(path)) ::unlink(path.c_str());
  }
}

Result<UnixListener> UnixListener::open(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return fail(Code::kInvalidArgument, "socket " + path + ": the path is not absolute");
  const std::string folder = path.substr(0, slash);
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::string hidden = fmt::format("{}/{}{:08x}", folder, kHidden, static_cast<std::uint32_t>(now ^ now >> 32U) ^
                                                                             static_cast<std::uint32_t>(::getpid()));
  CARVE_TRY(const auto address, unix_address(hidden));
  CARVE_TRY(const auto final_address, unix_address(path));
  static_cast<void>(final_address);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return tl::unexpected(errno_error(errno, "socket"));
  const Fd alone = locked(folder);
  if (alone) remove_dead_sockets(folder, kHidden);
  ::unlink(hidden.c_str());
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return tl::unexpected(errno_error(errno, "bind " + hidden));
  struct stat status = {};
  if (::chmod(hidden.c_str(), 0600) != 0 || ::listen(fd.get(), 256) != 0 ||
      ::stat(hidden.c_str(), &status) != 0 || std::rename(hidden.c_str(), path.c_str()) != 0) {
    const int err = errno;
    ::unlink(hidden.c_str());
    return tl::unexpected(errno_error(err, "listen on " + path));
  }
  return UnixListener(std::move(fd), path, status.st_ino);
}

UnixListener& UnixListener::operator=(UnixListener&& other) noexcept {
  if (this != &other) {
    remove();
    fd_ = std::move(other.fd_);
    path_ = std::move(other.path_);
    inode_ = std::exchange(other.inode_, 0);
  }
  return *this;
}

bool UnixListener::in_place() const {
  struct stat status = {};
  return fd_ && ::stat(path_.c_str(), &status) == 0 && status.st_ino == inode_;
}

Fd UnixListener::accept() const {
  Fd connection(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) return connection;
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (peer.uid != 0 && peer.uid != ::geteuid()))
    return Fd();
  return connection;
}

void UnixListener::remove() {
  if (in_place()) ::unlink(path_.c_str());
  fd_.reset();
}

Result<Fd> connect_unix(const std::string& path) {
  CARVE_TRY(const auto address, unix_address(path));
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return tl::unexpected(errno_error(errno, "socket"));
  const int err = dial(fd, address);  // EAGAIN: the backlog is full
  if (err == ECONNREFUSED || err == EAGAIN)
    return fail(Code::kUnavailable, "connect " + path + ": " + std::strerror(err));
  if (err != 0) return tl::unexpected(errno_error(err, "connect " + path));
  return fd;
}

std::uint64_t file_identity(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  // The inode number may be reused immediately; the change time distinguishes the two files.
  const auto made = static_cast<std::uint64_t>(status.st_ctim.tv_sec) * 1'000'000'000U +
                    static_cast<std::uint64_t>(status.st_ctim.tv_nsec);
  return (static_cast<std::uint64_t>(status.st_ino) * 0x9e3779b97f4a7c15U) ^ made;
}

}  // namespace carve::kubelet
