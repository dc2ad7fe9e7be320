#include "sim/protocol/client.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

namespace carve::sim {
namespace {

void* map_shared(int fd, std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_DONTFORK);  // a child has no context until it opens its own connection
  return at;
}

}  // namespace

Status Connection::open(ClientKind kind, const char* path) {
  const MutexLock lock(mutex_);
  if (fd_ >= 0) return Status::kOk;
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status::kGone;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  int rc;
  do {
    rc = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) {
    ::close(fd);
    return Status::kGone;
  }
  fd_ = fd;
  const Status status = hello(kind);
  if (status != Status::kOk) {
    ::close(fd_);
    fd_ = -1;
  }
  return status;
}

Status Connection::hello(ClientKind kind) {
  const Request request{Op::kHello, 0, kProtocolAbi, static_cast<std::uint64_t>(kind), 0};
  if (send(fd_, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return Status::kGone;
  std::vector<unsigned char> bytes;
  int fds[2] = {-1, -1};
  const Status status = receive(nullptr, &bytes, fds);
  if (status != Status::kOk) return status;
  if (bytes.size() != sizeof machine_) return Status::kWrongAbi;
  std::memcpy(&machine_, bytes.data(), sizeof machine_);
  if (kind != ClientKind::kCuda) return Status::kOk;
  channel_ = static_cast<Channel*>(map_shared(fds[0], sizeof(Channel)));
  bell_ = static_cast<Bell*>(map_shared(fds[1], 4096));
  ::close(fds[0]);
  ::close(fds[1]);
  return channel_ != nullptr && bell_ != nullptr ? Status::kOk : Status::kTooMany;
}

void Connection::close() {
  const MutexLock lock(mutex_);
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  // The mappings stay: another thread may be in a launch while the process exits.
}

bool Connection::peer_alive() const {
  pollfd polled = {fd_, POLLRDHUP, 0};
  return fd_ >= 0 &&
         (poll(&polled, 1, 0) <= 0 || (polled.revents & (POLLHUP | POLLRDHUP | POLLERR)) == 0);
}

Status Connection::call(Op op, std::uint32_t card, std::uint64_t a, std::uint64_t b,
                        std::uint64_t* out, std::vector<unsigned char>* records) {
  return exchange({op, card, a, b, 0}, out, records);
}

Status Connection::inject(std::uint32_t card, Injection what, std::uint64_t argument,
                          std::uint64_t pid) {
  return exchange({Op::kInject, card, static_cast<std::uint64_t>(what), argument, pid}, nullptr,
                  nullptr);
}

Status Connection::next_event(EventRecord* out) {
  const MutexLock lock(mutex_);
  if (fd_ < 0) return Status::kGone;
  unsigned char packet[sizeof(Reply) + sizeof(EventRecord)];
  const ssize_t n = recv(fd_, packet, sizeof packet, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Status::kTimedOut;
  if (n != sizeof packet) return Status::kGone;
  std::memcpy(out, packet + sizeof(Reply), sizeof *out);
  return Status::kOk;
}

Status Connection::exchange(const Request& request, std::uint64_t* out,
                            std::vector<unsigned char>* records) {
  const MutexLock lock(mutex_);
  if (fd_ < 0) return Status::kGone;
  ssize_t sent;
  do {
    sent = send(fd_, &request, sizeof request, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof request) return Status::kGone;
  return receive(out, records, nullptr);
}

Status Connection::receive(std::uint64_t* out, std::vector<unsigned char>* records, int* fds) {
  alignas(8) unsigned char small[512];
  std::vector<unsigned char> large;
  unsigned char* buffer = small;
  std::size_t size = sizeof small;
  if (records != nullptr) {
    large.resize(kMaxPacket);
    buffer = large.data();
    size = large.size();
  }
  for (;;) {
    iovec iov{buffer, size};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
    msghdr message = {};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n;
    do {
      n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    Reply reply;
    if (n < static_cast<ssize_t>(sizeof reply)) return Status::kGone;
    std::memcpy(&reply, buffer, sizeof reply);
    const cmsghdr* head = CMSG_FIRSTHDR(&message);
    if (fds != nullptr && head != nullptr && head->cmsg_type == SCM_RIGHTS)
      std::memcpy(fds, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
    if (records != nullptr) records->insert(records->end(), buffer + sizeof reply, buffer + n);
    if (out != nullptr) *out = reply.a;
    if (reply.more == 0) return reply.status;
  }
}

void ring(Bell* bell) {
  if (bell->armed.load(std::memory_order_relaxed) == 0) return;
  if (bell->armed.exchange(0) == 0) return;
  bell->word.fetch_add(1);
  syscall(SYS_futex, &bell->word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace carve::sim
