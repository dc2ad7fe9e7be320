#include "adapter/api/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "base/unix_address.h"

namespace carve::api {
namespace {

constexpr std::chrono::milliseconds kFrameTime{5'000};  // from a frame's first byte to its last

Result<void> wait_for(int fd, short events, std::chrono::milliseconds timeout) {
  pollfd item = {fd, events, 0};
  int n;
  do {
    n = ::poll(&item, 1, static_cast<int>(std::min<long long>(timeout.count(), INT_MAX)));
  } while (n < 0 && errno == EINTR);
  if (n == 0) return fail(Code::kDeadlineExceeded, "no message arrived in time");
  if (n < 0) return tl::unexpected(errno_error(errno, "poll"));
  return {};
}

Result<void> receive_all(int fd, char* to, std::size_t bytes, std::chrono::milliseconds first_wait) {
  const auto start = std::chrono::steady_clock::now();
  auto wait = first_wait;
  while (bytes > 0) {
    CARVE_TRY_VOID(wait_for(fd, POLLIN, wait));
    const ssize_t n = ::recv(fd, to, bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return tl::unexpected(errno_error(errno, "receive"));
    if (n == 0) return fail(Code::kUnavailable, "the peer closed the connection");
    to += n;
    bytes -= static_cast<std::size_t>(n);
    wait = kFrameTime;
    if (bytes > 0 && std::chrono::steady_clock::now() - start > first_wait + kFrameTime) {
      return fail(Code::kDeadlineExceeded, "a message did not arrive completely in time");
    }
  }
  return {};
}

}  // namespace

Result<std::string> receive_frame(int fd, std::size_t max_bytes, std::chrono::milliseconds idle) {
  std::array<unsigned char, 4> head = {};
  CARVE_TRY_VOID(receive_all(fd, reinterpret_cast<char*>(head.data()), head.size(), idle));
  const std::size_t length = head[0] | static_cast<std::size_t>(head[1]) << 8U |
                             static_cast<std::size_t>(head[2]) << 16U | static_cast<std::size_t>(head[3]) << 24U;
  if (length > max_bytes) {
    return fail(Code::kOutOfRange,
                "message of " + std::to_string(length) + " bytes; at most " + std::to_string(max_bytes) + " are legal");
  }
  std::string bytes(length, '\0');
  CARVE_TRY_VOID(receive_all(fd, bytes.data(), length, kFrameTime));
  return bytes;
}

Result<void> send_frame(int fd, std::string_view bytes) {
  std::string frame(4, '\0');
  for (unsigned i = 0; i < 4; ++i) frame[i] = static_cast<char>(bytes.size() >> (8 * i) & 0xFFU);
  frame += bytes;
  std::string_view left = frame;
  while (!left.empty()) {
    const ssize_t n = ::send(fd, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      CARVE_TRY_VOID(wait_for(fd, POLLOUT, kFrameTime));
      continue;
    }
    if (n < 0) return tl::unexpected(errno_error(errno, "send"));
    left.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<Fd> listen_at(const std::string& path) {
  // The socket replaces the stale one of a dead process in one step: to a client that waits for the next agent,
  // the stale socket shows that an agent is expected.
  const std::string fresh = path + "~";
  CARVE_TRY(const sockaddr_un address, unix_address(fresh));
  constexpr std::chrono::milliseconds kMoment{100};  // a listener that does not accept in time is alive too
  if (auto living = connect_to(path, kMoment); living || living.error().code == Code::kDeadlineExceeded) {
    return fail(Code::kAlreadyExists, path + ": another process already listens on it");
  }
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) return fail(Code::kFailedPrecondition, path + ": exists and is not a socket");
  }
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return tl::unexpected(errno_error(errno, "socket"));
  ::unlink(fresh.c_str());  // of a process that died here
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return tl::unexpected(errno_error(errno, "bind " + path));
  }
  ::chmod(fresh.c_str(), 0666);
  if (::listen(fd.get(), 128) != 0) return tl::unexpected(errno_error(errno, "listen " + path));
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(fresh.c_str());
    return tl::unexpected(errno_error(error, "create " + path));
  }
  return fd;
}

Result<Fd> connect_to(const std::string& path, std::chrono::milliseconds patience) {
  CARVE_TRY(const sockaddr_un address, unix_address(path));
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return tl::unexpected(errno_error(errno, "socket"));
  // connect() of a Unix socket blocks like send() (unix(7), socket(7)): without a timeout it may block forever.
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
  const timeval limit = {seconds.count(), std::chrono::microseconds(patience - seconds).count()};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int err = errno;
    if (err == EAGAIN)
      return fail(Code::kDeadlineExceeded, path + ": a process listens on it but accepts no connection");
    const char* words = err == ENOENT         ? "there is no socket"
                        : err == ECONNREFUSED ? "no process listens on it (a stale socket)"
                                              : std::strerror(err);
    return fail(err == EACCES ? Code::kPermissionDenied : Code::kUnavailable, path + ": " + words);
  }
  return fd;
}

bool peer_closed(int fd) {
  pollfd item = {fd, POLLRDHUP, 0};
  return ::poll(&item, 1, 0) > 0 && (item.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

}  // namespace carve::api
