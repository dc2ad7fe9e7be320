#include "arbiter/wire.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "abi/hello.h"
#include "base/unix_address.h"

namespace carve::arbiter {
namespace {
constexpr std::size_t kMostFds = 2 * abi::kMaxCardsPerSlice + 1;
// The kernel's SCM_MAX_FD. The kernel closes descriptors that do not fit inside recvmsg(), and that may take long.
constexpr std::size_t kMostFdsReceived = 253;
}

bool send_packet(int socket, const void* bytes, std::size_t size, const std::vector<int>& fds) {
  iovec data{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFds * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty() && fds.size() <= kMostFds) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
}

Result<Packet> receive_packet(int socket, void* bytes, std::size_t size) {
  iovec data{bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostFdsReceived * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_TRUNC);
  if (got < 0) return tl::unexpected(errno_error(errno, "receive"));
  Packet packet;
  packet.size = static_cast<std::size_t>(got);
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  return packet;
}

Result<Fd> listen_at(const std::string& path, unsigned mode) {
  CARVE_TRY(const auto address, unix_address(path));
  {
    const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN) {
      return fail(Code::kAlreadyExists, "a process already listens at " + path);
    }
  }
  unlink(path.c_str());
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  constexpr int kBacklog = 256;
  if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), mode) != 0 || listen(listener.get(), kBacklog) != 0) {
    return tl::unexpected(errno_error(errno, "listen at " + path));
  }
  return listener;
}

}  // namespace carve::arbiter
