#include "sim/daemon/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "sim/daemon/reports.h"
#include "sim/protocol/client.h"

namespace carve::sim {
namespace {

constexpr int kAnswerBytes = 16 << 20;  // fits the longest possible list when the client does not read

void send_reply(int socket, const Reply& reply, const void* records = nullptr) {
  iovec parts[2] = {{const_cast<Reply*>(&reply), sizeof reply},
                    {const_cast<void*>(records), std::size_t{reply.count} * reply.record_bytes}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = records != nullptr && reply.count > 0 ? 2 : 1;
  // The daemon never waits for a client: a client that does not read its answers loses its connection.
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) shutdown(socket, SHUT_RDWR);
}

void answer(int socket, Status status, std::uint64_t a = 0) {
  send_reply(socket, Reply{status, 0, 0, 0, a, 0});
}

template <class R>
void answer_list(int socket, const std::vector<R>& records) {
  const std::size_t per_packet = (32U << 10) / sizeof(R);
  std::size_t sent = 0;
  do {
    const std::size_t n = std::min(per_packet, records.size() - sent);
    const bool more = sent + n < records.size();
    send_reply(socket,
               Reply{Status::kOk, static_cast<std::uint32_t>(n), sizeof(R), more ? 1U : 0U, 0, 0},
               records.data() + sent);
    sent += n;
  } while (sent < records.size());
}

void send_with_fds(int socket, const MachineRecord& machine, const int (&fds)[2]) {
  const Reply reply{Status::kOk, 1, sizeof machine, 0, 0, 0};
  iovec parts[2] = {{const_cast<Reply*>(&reply), sizeof reply},
                    {const_cast<MachineRecord*>(&machine), sizeof machine}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(head), fds, sizeof fds);
  sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string process_name(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

/// The path in the unified hierarchy ("0::/…"), "/" where there is none.
std::string process_cgroup(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::")) return line.substr(3);
  return "/";
}

/// Root in the daemon's PID namespace: a tenant in a container that sees the socket may not inject faults.
bool may_inject(std::int32_t pid) {
  struct stat own = {}, theirs = {};
  const std::string process = "/proc/" + std::to_string(pid);
  if (stat("/proc/self/ns/pid", &own) != 0 || stat((process + "/ns/pid").c_str(), &theirs) != 0) return false;
  struct stat owner = {};
  return own.st_ino == theirs.st_ino && stat(process.c_str(), &owner) == 0 && owner.st_uid == 0;
}

void watch(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Server::Server(Kernel& kernel, std::string profile, std::string instance, Bell* bell, int bell_fd)
    : kernel_(kernel),
      profile_(std::move(profile)),
      instance_(std::move(instance)),
      bell_(bell),
      bell_fd_(bell_fd) {}

bool Server::listen_at(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (const std::size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0)
    mkdir(path.substr(0, slash).c_str(), 0755);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  listen_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listen_ < 0) return false;
  if (connect(listen_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    errno = EADDRINUSE;  // a daemon is running; a stale socket refuses the connection
    return false;
  }
  close(listen_);
  listen_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  unlink(path.c_str());
  if (bind(listen_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
  chmod(path.c_str(), 0666);  // like the driver's device nodes
  if (listen(listen_, 256) != 0) return false;
  watch(epoll_, listen_);
  return true;
}

void Server::accept_client() {
  const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  ucred peer = {};
  socklen_t size = sizeof peer;
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kAnswerBytes, sizeof kAnswerBytes);
  auto client = std::make_unique<Client>();
  client->pid = peer.pid;
  client->socket = fd;
  client->pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  client->name = process_name(peer.pid);
  client->cgroup = process_cgroup(peer.pid);
  {
    const Kernel::Lock lock(kernel_);
    kernel_.add_client(std::move(client), monotonic_ns());
  }
  watch(epoll_, fd);
}

void Server::drop(int socket) {
  {
    const Kernel::Lock lock(kernel_);
    const std::uint64_t now = monotonic_ns();
    kernel_.advance(now);
    const auto found = kernel_.clients().find(socket);
    if (found != kernel_.clients().end()) kernel_.remove_client(found->second.get(), now);
  }
  close(socket);
  ring(bell_);
}

void Server::drop_all(const std::vector<int>& sockets) {
  for (const int socket : sockets) close(socket);
  if (!sockets.empty()) ring(bell_);
}

void Server::hello(int socket, const Request& request) {
  if (request.a != kProtocolAbi) return answer(socket, Status::kWrongAbi);
  const auto kind = static_cast<ClientKind>(request.b);
  if (gone_ && kind != ClientKind::kControl) return answer(socket, Status::kGone);
  const Kernel::Lock lock(kernel_);
  Client& client = *kernel_.clients().at(socket);
  if (kind == ClientKind::kControl && client.channel == nullptr) client.kind = kind;
  MachineRecord machine = {};
  std::strncpy(machine.profile, profile_.c_str(), sizeof machine.profile - 1);
  std::strncpy(machine.instance, instance_.c_str(), sizeof machine.instance - 1);
  machine.boot_ns = kernel_.boot_ns();
  machine.pid = client.pid;
  if (request.b != static_cast<std::uint64_t>(ClientKind::kCuda) || client.channel != nullptr) {
    return send_reply(socket, Reply{Status::kOk, 1, sizeof machine, 0, 0, 0}, &machine);
  }
  const int memory = memfd_create("carve-sim-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory < 0 || ftruncate(memory, sizeof(Channel)) != 0) {
    if (memory >= 0) close(memory);
    return answer(socket, Status::kTooMany);
  }
  fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* at =
      mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory, 0);
  if (at == MAP_FAILED) {
    close(memory);
    return answer(socket, Status::kTooMany);
  }
  client.kind = ClientKind::kCuda;
  client.channel = static_cast<Channel*>(at);
  client.channel->magic = kChannelMagic;
  client.channel->abi = kProtocolAbi;
  send_with_fds(socket, machine, {memory, bell_fd_});
  close(memory);
}

/// True when the request of a management library must stay in the socket because the driver hangs.
bool Server::parked(int socket) {
  if (!hangs_) return false;
  Request request = {};
  const ssize_t n = recv(socket, &request, sizeof request, MSG_DONTWAIT | MSG_PEEK);
  if (n <= 0) return false;
  {
    const Kernel::Lock lock(kernel_);
    const auto found = kernel_.clients().find(socket);
    if (found == kernel_.clients().end() || found->second->kind != ClientKind::kQuery) return false;
  }
  if (request.op == Op::kHello && request.b != static_cast<std::uint64_t>(ClientKind::kQuery)) return false;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  parked_.push_back(socket);
  return true;
}

void Server::unpark() {
  std::vector<int> sockets;
  sockets.swap(parked_);
  for (const int socket : sockets) watch(epoll_, socket);
}

void Server::tell_watchers(const EventRecord& event) {
  for (const auto& [socket, client] : kernel_.clients()) {
    if (client->watches) send_reply(socket, Reply{Status::kOk, 1, sizeof event, 0, 0, 0}, &event);
  }
}

Status Server::injected(const Request& request) {
  const auto what = static_cast<Injection>(request.a);
  const bool of_a_card = what >= Injection::kXid && what <= Injection::kReset;
  if (of_a_card && request.card >= kernel_.machine().count) return Status::kNoSuchCard;
  switch (what) {
    case Injection::kXid:
    case Injection::kLose: {
      constexpr std::uint64_t kOffTheBus = 79, kMostXid = 999;
      const std::uint64_t code = what == Injection::kLose ? kOffTheBus : request.b;
      if (code == 0 || code > kMostXid) return Status::kBadRequest;
      kernel_.xid(request.card, static_cast<std::uint32_t>(code), static_cast<std::int32_t>(request.c));
      tell_watchers({request.card, static_cast<std::uint32_t>(code), monotonic_ns()});
      return Status::kOk;
    }
    case Injection::kReturn:
      kernel_.restore(request.card);
      return Status::kOk;
    case Injection::kReset:
      return kernel_.reset(request.card);
    case Injection::kHang:
      hangs_ = request.b != 0;
      if (!hangs_) unpark();
      return Status::kOk;
    case Injection::kDriver:
      gone_ = request.b == 0;
      // What a management library had open becomes invalid. Contexts continue, as in a driver that is held open.
      for (const auto& [socket, client] : kernel_.clients()) {
        if (gone_ && client->kind == ClientKind::kQuery) shutdown(socket, SHUT_RDWR);
      }
      return Status::kOk;
  }
  return Status::kBadRequest;
}

void Server::inject(Client& client, const Request& request, std::uint64_t now) {
  if (!may_inject(client.pid)) return answer(client.socket, Status::kNotPermitted);
  kernel_.advance(now);
  const Status status = injected(request);
  answer(client.socket, status);
  ring(bell_);
}

void Server::serve(int socket) {
  if (parked(socket)) return;
  Request request;
  const ssize_t n = recv(socket, &request, sizeof request, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return drop(socket);
  if (n != sizeof request) return answer(socket, Status::kBadRequest);
  if (request.op == Op::kHello) return hello(socket, request);
  const Kernel::Lock lock(kernel_);
  const std::uint64_t now = monotonic_ns();
  drop_all(kernel_.reap(now));  // dead processes go before the grant or the report
  const auto found = kernel_.clients().find(socket);
  if (found == kernel_.clients().end()) return;  // the calling process itself was dead
  if (request.op == Op::kInject) return inject(*found->second, request, now);
  if (request.op < Op::kContextCreate || request.op >= Op::kAccount) {
    kernel_.advance(now);
    return query(*found->second, request, now);
  }
  dispatch(*found->second, request);
}

void Server::dispatch(Client& client, const Request& request) {
  std::uint64_t out = 0;
  Status status = Status::kBadRequest;
  switch (request.op) {
    case Op::kContextCreate:
      status = kernel_.allocate(client, request.card, 0, Charge::kContext, &out);
      break;
    case Op::kContextDestroy:
      status = kernel_.release(client, request.a, true);
      break;
    case Op::kAlloc:
      status = kernel_.allocate(client, request.card, request.a, Charge::kExplicit, &out);
      break;
    case Op::kModuleAlloc:
      status = kernel_.allocate(client, request.card, request.a, Charge::kModule, &out);
      break;
    case Op::kFree:
      status = kernel_.release(client, request.a, false);
      break;
    case Op::kShare:
      status = kernel_.share(client, request.a, &out);
      break;
    case Op::kOpenShared:
      status = kernel_.open_shared(client, request.a, &out);
      break;
    case Op::kStreamOpen:
      status = kernel_.open_stream(client, request.card, &out);
      break;
    case Op::kStreamClose:
      status = kernel_.close_stream(client, request.a);
      break;
    default:
      break;
  }
  answer(client.socket, status, out);
}

void Server::query(Client& client, const Request& request, std::uint64_t now) {
  const int socket = client.socket;
  const bool has_card = request.card < kernel_.machine().count;
  if (request.op <= Op::kProcessSamples && has_card && kernel_.engine(request.card).lost)
    return answer(socket, Status::kCardLost);
  switch (request.op) {
    case Op::kCardStatus:
      if (!has_card) return answer(socket, Status::kNoSuchCard);
      return answer_list(socket, std::vector{card_status(kernel_, request.card, now)});
    case Op::kCardProcesses:
      if (!has_card) return answer(socket, Status::kNoSuchCard);
      return answer_list(socket, card_processes(kernel_, request.card));
    case Op::kCardSamples:
      if (!has_card) return answer(socket, Status::kNoSuchCard);
      return answer_list(socket, card_samples(kernel_, request.card, request.a, now));
    case Op::kProcessSamples:
      if (!has_card) return answer(socket, Status::kNoSuchCard);
      return answer_list(socket, process_samples(kernel_, request.card, request.a, now));
    case Op::kCardState: {
      if (!has_card) return answer(socket, Status::kNoSuchCard);
      const Engine& engine = kernel_.engine(request.card);
      return answer(socket, engine.lost ? Status::kCardLost : Status::kOk,
                    engine.recovery | (engine.down ? kCardDown : 0));
    }
    case Op::kWatchEvents:
      client.watches = true;
      return answer(socket, Status::kOk);
    case Op::kAccount:
      return answer_list(socket, account_records(kernel_));
    case Op::kGroups:
      return answer_list(socket, group_records(kernel_));
    case Op::kCards:
      return answer_list(socket, card_records(kernel_));
    case Op::kWindows:
      if (request.a < 10 || request.a % 10 != 0 || request.a > 60'000)
        return answer(socket, Status::kBadRequest);
      return answer_list(socket, window_records(kernel_, request.a, request.b, now));
    default:
      return answer(socket, Status::kBadRequest);
  }
}

void Server::run(int stop_fd) {
  watch(epoll_, stop_fd);
  for (;;) {
    epoll_event events[64];
    const int n = epoll_wait(epoll_, events, 64, -1);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_fd) return;
      if (fd == listen_) {
        accept_client();
      } else {
        serve(fd);
      }
    }
  }
}

}  // namespace carve::sim
