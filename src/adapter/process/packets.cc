#include "adapter/process/packets.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace carve::process {

Result<std::pair<Fd, Fd>> packet_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return tl::unexpected(errno_error(errno, "socketpair"));
  return std::pair(Fd(ends[0]), Fd(ends[1]));
}

Result<void> send_packet(int fd, std::string_view packet, std::chrono::milliseconds patience) {
  if (packet.empty()) return fail(Code::kInvalidArgument, "the packet is empty, which means the end of the connection");
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (::send(fd, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return fail(Code::kNotFound, "the other process has ended");
    if (errno == EMSGSIZE) return fail(Code::kInvalidArgument, "the packet is longer than the socket's buffer");
    if (errno != EAGAIN && errno != ENOBUFS) return tl::unexpected(errno_error(errno, "send"));
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd item = {fd, POLLOUT, 0};
    if (left.count() <= 0 || ::poll(&item, 1, static_cast<int>(left.count())) == 0)
      return fail(Code::kUnavailable, "the other process does not read");
  }
}

Received receive_packet(int fd, std::string* packet) {
  for (;;) {
    const ssize_t size = ::recv(fd, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN ? Received::kNothing : Received::kEnd;
    if (size == 0) return Received::kEnd;
    packet->resize(static_cast<std::size_t>(size));
    const ssize_t got = ::recv(fd, packet->data(), packet->size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    return got == size ? Received::kPacket : Received::kEnd;
  }
}

}  // namespace carve::process
