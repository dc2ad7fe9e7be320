#include "adapter/kubelet/unix_listener.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace carve::kubelet {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return fail(Code::kInvalidArgument, fmt::format("socket {}: {} characters, at most {} are legal", path,
                                                    path.size(), sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Result<UnixListener> UnixListener::open(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return fail(Code::kInvalidArgument, "socket " + path + ": not absolute");
  // A leading dot: the kubelet's plugin watcher does not look at such names. Short: a socket's path may not be longer.
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::string hidden = path.substr(0, slash + 1) +
                             fmt::format("{}{:08x}", kHiddenSocket, static_cast<std::uint32_t>(now ^ now >> 32U) ^
                                                                        static_cast<std::uint32_t>(::getpid()));
  CARVE_TRY(const auto address, address_of(hidden));
  CARVE_TRY(const auto final_address, address_of(path));
  static_cast<void>(final_address);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return tl::unexpected(errno_error(errno, "socket"));
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
  CARVE_TRY(const auto address, address_of(path));
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return tl::unexpected(errno_error(errno, "socket"));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int err = errno;  // EAGAIN: its backlog is full
    if (err == ECONNREFUSED || err == EAGAIN)
      return fail(Code::kUnavailable, "connect " + path + ": " + std::strerror(err));
    return tl::unexpected(errno_error(err, "connect " + path));
  }
  return fd;
}

std::uint64_t file_identity(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return 0;
  // The inode number alone may come again at once; the time of its making tells the two apart.
  const auto made = static_cast<std::uint64_t>(status.st_ctim.tv_sec) * 1'000'000'000U +
                    static_cast<std::uint64_t>(status.st_ctim.tv_nsec);
  return (static_cast<std::uint64_t>(status.st_ino) * 0x9e3779b97f4a7c15U) ^ made;
}

}  // namespace carve::kubelet
