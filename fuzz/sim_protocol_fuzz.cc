// A client of the simulated driver that sends arbitrary data: packets of any length on the socket, and noise in the
// shared memory of the launch path while the daemon runs it. The daemon must survive and continue to answer its other
// client. The real server and kernel side run in this process; each input is one connection.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "sim/daemon/kernel.h"
#include "sim/daemon/server.h"
#include "sim/protocol/client.h"

namespace carve::sim {
namespace {

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "sim_protocol_fuzz: %s\n", what);
  std::abort();
}

/// A daemon with two cards in this process; it runs until the process ends.
class Daemon {
 public:
  Daemon() {
    path_ = "/tmp/sim_protocol_fuzz." + std::to_string(getpid());
    std::string error;
    if (!parse_machine("h200x2", "fuzz", &machine_, &error)) broken(error.c_str());
    kernel_ = std::make_unique<Kernel>(machine_, monotonic_ns());
    const int bell_fd = memfd_create("bell", MFD_CLOEXEC);
    if (bell_fd < 0 || ftruncate(bell_fd, 4096) != 0) broken("bell");
    bell_ = static_cast<Bell*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, bell_fd, 0));
    server_ = std::make_unique<Server>(*kernel_, "h200x2", "fuzz", bell_, bell_fd);
    if (!server_->listen_at(path_)) broken("listen");
    thread_ = std::thread([this] { server_->run(eventfd(0, EFD_CLOEXEC)); });
    thread_.detach();  // until the process ends
    if (neighbour_.open(ClientKind::kControl, path_.c_str()) != Status::kOk) broken("neighbour");
  }

  const std::string& path() const { return path_; }

  /// Removes every fault that an input injected.
  void remove_faults() {
    for (const auto what : {Injection::kHang, Injection::kDriver})
      neighbour_.inject(0, what, what == Injection::kDriver ? 1 : 0);
    for (std::uint32_t card = 0; card < 2; ++card) neighbour_.inject(card, Injection::kReturn, 0);
  }

  /// A request of the other client; also advances the timeline.
  void must_answer() {
    std::vector<CardTruthRecord> cards;
    if (neighbour_.list(Op::kCards, 0, 0, 0, &cards) != Status::kOk || cards.size() != 2) {
      broken("the daemon no longer answers its other client");
    }
    for (const CardTruthRecord& card : cards) {
      if (card.used_bytes > card.total_bytes) broken("more memory granted than the card has");
    }
    const Kernel::Lock lock(*kernel_);
    kernel_->advance(monotonic_ns());
    (void)kernel_->next_wake(monotonic_ns());
    (void)kernel_->anything_new();
  }

 private:
  std::string path_;
  Machine machine_;
  std::unique_ptr<Kernel> kernel_;
  Bell* bell_ = nullptr;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  Connection neighbour_;
};

/// The bytes of the input in order, then zeros.
struct Input {
  const std::uint8_t* data;
  std::size_t size;
  void take(void* out, std::size_t n) {
    std::memset(out, 0, n);
    const std::size_t have = n < size ? n : size;
    std::memcpy(out, data, have);
    data += have;
    size -= have;
  }
  template <class T>
  T next() {
    T value;
    take(&value, sizeof value);
    return value;
  }
};

/// Reads the available packets without waiting, and keeps the descriptors of a hello.
void drain(int fd, int* memory) {
  static unsigned char buffer[kMaxPacket];
  for (;;) {
    iovec iov{buffer, sizeof buffer};
    alignas(cmsghdr) char control[256];
    msghdr message = {};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) <= 0) return;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(2 * sizeof(int))) continue;
      int fds[2];
      std::memcpy(fds, CMSG_DATA(head), sizeof fds);
      if (*memory >= 0) ::close(*memory);
      *memory = fds[0];
      ::close(fds[1]);
    }
  }
}

/// Writes up to 40 bytes of noise where the launch path stores its counters and commands.
void scribble(Input& in, Channel* channel) {
  const auto where = in.next<std::uint16_t>();
  auto* cell = &channel->streams[where % 8];
  auto* ring = &channel->rings[where % 8][in.next<std::uint8_t>() % 8];
  switch (where >> 14) {
    case 0: in.take(static_cast<void*>(ring), sizeof *ring); break;
    case 1: cell->submitted.store(in.next<std::uint64_t>()); break;
    case 2: cell->submitted.fetch_add(in.next<std::uint8_t>() % 16); break;
    default: in.take(static_cast<void*>(cell), sizeof *cell); break;
  }
}

/// Sends one packet: mostly a well-formed request with small numbers, so that inputs get past the first check.
void send_packet(Input& in, int fd) {
  const auto how = in.next<std::uint8_t>();
  if (how % 8 == 7) {
    unsigned char bytes[96];
    const std::size_t n = in.next<std::uint8_t>() % sizeof bytes;
    in.take(bytes, n);
    (void)!send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  Request request = {};
  request.op = static_cast<Op>(in.next<std::uint8_t>() % 50);
  request.card = in.next<std::uint8_t>() % 4;
  request.a = how % 2 == 0 ? in.next<std::uint8_t>() : in.next<std::uint64_t>();
  request.b = how % 4 < 2 ? in.next<std::uint8_t>() % 4 : in.next<std::uint64_t>();
  (void)!send(fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void one_client(Daemon& daemon, Input in) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, daemon.path().c_str(), daemon.path().size());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) broken("connect");
  int memory = -1;
  if (in.next<std::uint8_t>() % 4 != 0) {
    const Request hello{Op::kHello, 0, kProtocolAbi, static_cast<std::uint64_t>(ClientKind::kCuda), 0};
    (void)!send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    daemon.must_answer();
    drain(fd, &memory);
  }
  void* at = MAP_FAILED;
  if (memory >= 0) {
    at = mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory, 0);
  }
  for (int steps = 0; in.size > 0 && steps < 64; ++steps) {
    if (at != MAP_FAILED && in.next<std::uint8_t>() % 2 == 0) {
      scribble(in, static_cast<Channel*>(at));
    } else {
      send_packet(in, fd);
    }
    if (steps % 4 == 3) drain(fd, &memory);
  }
  daemon.must_answer();
  if (at != MAP_FAILED) munmap(at, sizeof(Channel));
  if (memory >= 0) ::close(memory);
  ::close(fd);
  daemon.remove_faults();
  daemon.must_answer();
}

}  // namespace
}  // namespace carve::sim

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* daemon = new carve::sim::Daemon;
  carve::sim::one_client(*daemon, {data, size});
  return 0;
}
