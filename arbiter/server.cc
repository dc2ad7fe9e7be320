#include "arbiter/server.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "arbiter/wire.h"

namespace carve::arbiter {
namespace {

constexpr std::uint64_t kGuestPatienceNs = 1'000'000'000;
constexpr std::size_t kMostGuestsOfSlice = 32;  // a later guest replaces one that sends no hello
constexpr std::size_t kMostAgents = 8;
constexpr int kTickMs = 200;
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5

/// The process at the other end, pinned, so that its PID cannot be reused for another process.
Fd pidfd_of(int socket, std::int32_t pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return Fd(fd);
  if (errno != ENOPROTOOPT) return {};  // it has ended, and another process may have its PID
  return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

Server::Server(const Options& options, Log& log, PageFiles files, Lifelines lifelines, Fd control)
    : log_(log), files_(std::move(files)), lifelines_(std::move(lifelines)), cards_(options.trace_path, log),
      shared_{files_, lifelines_, cards_, options.runtime_folder + "/slices"}, control_(std::move(control)),
      groups_(options.groups_folder, options.groups_path) {}

Result<void> Server::run(const std::stop_token& stop) {
  recover();
  log_.info("arbiter ready", {{"slices", slices_.size()}});
  std::uint64_t next_look = 0;
  while (!stop.stop_requested()) {
    poll_once(kTickMs);
    if (now_ns() < next_look) continue;
    next_look = now_ns() + kTickMs * 1'000'000ULL;
    for (const auto& [id, slice] : slices_) slice->look_around();
    closers_.reap();
  }
  if (slices_.empty()) files_.unmount();
  return {};
}

// Recovers the state of an earlier arbiter. The agent hands back the descriptors that it keeps. If no agent runs
// either, the mappings of living clients lead to their account pages, so that running slices are scheduled again
// immediately. If no process of a slice lives, only the agent knows whether the slice still exists: it may have ended
// while no arbiter ran.
void Server::recover() {
  std::map<std::string, std::uint32_t> found;
  Grants grants;
  std::set<std::uint64_t> inodes;
  for (const std::string& name : files_.names()) {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string::npos) continue;
    ++found[name.substr(0, dash)];
    auto grant = files_.grant(name);
    if (!grant || (*grant)->magic != abi::kGrantMagic) continue;
    inodes.insert((*grant)->account_inode);
    grants.emplace(name, std::move(*grant));
  }
  for (const std::string& name : names_in(shared_.slices_folder)) found.try_emplace(name, 0);
  auto accounts = find_accounts(inodes);
  for (const auto& [id, cards] : found) {
    if (abi::valid_slice_id(id.c_str()) && !recover_slice(id, cards, grants, accounts)) remains_.insert(id);
  }
}

/// False: parts of it are missing, or no process lives in it.
bool Server::recover_slice(const std::string& id, std::uint32_t cards, const Grants& grants, Accounts& accounts) {
  abi::ControlRequest order = {};
  Slice::Descriptors kept;
  if (cards == 0 || cards > abi::kMaxCardsPerSlice) return false;
  std::memcpy(order.id, id.c_str(), id.size() + 1);
  order.card_count = static_cast<std::uint16_t>(cards);
  order.in_private_folder = access((shared_.slices_folder + "/" + id + "/" + id).c_str(), F_OK) == 0 ? 1 : 0;
  for (std::uint32_t i = 0; i < cards; ++i) {
    const auto grant = grants.find(id + "-" + std::to_string(i));
    if (grant == grants.end()) return false;
    const abi::GrantPage& page = *grant->second;
    const auto account = accounts.find(page.account_inode);
    if (account == accounts.end()) return false;  // no living process: the agent decides
    std::memcpy(order.cards[i].uuid, page.card_uuid, sizeof page.card_uuid);
    order.cards[i].memory_limit = page.memory_limit.load_relaxed();
    order.cards[i].context_bytes = page.context_bytes;
    order.cards[i].compute = page.compute_limit.load_relaxed();
    order.cards[i].share = page.share_class;
    order.cards[i].priority = page.priority_class;
    order.cards[i].ceiling = page.compute_ceiling.load_relaxed();
    kept.accounts.push_back(std::move(account->second.file.fd));
    if (i == 0) kept.processes = std::move(account->second.processes);
  }
  auto slice = Slice::open(shared_, closers_.open(), order, std::move(kept));
  if (!slice) {
    log_.error("slice not taken over", {{"slice", id}, {"error", slice.error().what}});
    return false;
  }
  log_.info("slice taken over from its processes", {{"slice", id}});
  slices_[id] = std::move(*slice);
  return true;
}

void Server::poll_once(int timeout_ms) {
  std::vector<pollfd> polled;
  polled.push_back({control_.get(), POLLIN, 0});
  for (const Fd& agent : agents_) polled.push_back({agent.get(), POLLIN, 0});
  const std::size_t agents_end = polled.size();
  // The server reads nothing more from a slice with a full closer.
  for (const Guest& guest : guests_) polled.push_back({guest.closer.full() ? -1 : guest.socket.get(), POLLIN, 0});
  const std::size_t guests_end = polled.size();
  struct Owner {
    Slice* slice;
    std::int64_t entry;  // −1: the listener
  };
  std::vector<Owner> owners;
  for (const auto& [id, slice] : slices_) {
    polled.push_back({slice->closer().full() ? -1 : slice->listener(), POLLIN, 0});
    owners.push_back({slice.get(), -1});
    for (const auto& [entry, member] : slice->members()) {
      // A member that was taken over may have no descriptor. poll() refuses more entries than the number of files that
      // the process may open, and entries without a descriptor count too.
      if (member.pidfd) {
        polled.push_back({member.pidfd.get(), POLLIN, 0});
        owners.push_back({slice.get(), entry});
      }
    }
  }
  if (poll(polled.data(), polled.size(), timeout_ms) < 0) return;
  // Deaths first: an account entry must not count after the end of its process.
  for (std::size_t i = guests_end; i < polled.size(); ++i) {
    const Owner& owner = owners[i - guests_end];
    if (polled[i].revents != 0 && owner.entry >= 0) owner.slice->process_died(static_cast<std::uint32_t>(owner.entry));
  }
  for (std::size_t i = guests_end; i < polled.size(); ++i) {
    const Owner& owner = owners[i - guests_end];
    if (polled[i].revents != 0 && owner.entry < 0) accept_guest(*owner.slice);
  }
  const std::uint64_t now = now_ns();
  for (std::size_t i = agents_end; i < guests_end; ++i) {
    Guest& guest = guests_[i - agents_end];
    if (!guest.socket) continue;
    // Checked again: earlier guests of this round may have filled the slice's closer.
    if (polled[i].revents != 0 && !guest.closer.full()) greet(guest);
    else if (guest.deadline_ns < now) guest.leaves();
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
  for (std::size_t i = 1; i < agents_end; ++i) {
    Fd& agent = agents_[i - 1];
    if (polled[i].revents != 0 && !serve_control(agent.get())) agent.reset();
  }
  std::erase_if(agents_, [](const Fd& agent) { return !agent; });
  if (polled[0].revents != 0) accept_control();
}

void Server::accept_control() {
  Fd agent(accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (!agent || getsockopt(agent.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  if (peer.uid != geteuid() || agents_.size() >= kMostAgents) {
    log_.warn("control connection refused", {{"uid", peer.uid}, {"pid", peer.pid}});
    return;
  }
  agents_.push_back(std::move(agent));
}

bool Server::serve_control(int socket) {
  alignas(abi::ControlRequest) char bytes[sizeof(abi::ControlRequest)];
  auto packet = receive_packet(socket, bytes, sizeof bytes);
  if (!packet) return packet.error().code == Code::kUnavailable;
  if (packet->size == 0) return false;
  abi::ControlRequest request = {};
  abi::ControlReply reply = {};
  if (const char* why = abi::malformed(bytes, packet->size, &request)) {
    answer(socket, reply, fail(Code::kInvalidArgument, why));
    return true;
  }
  std::memcpy(reply.id, request.id, sizeof reply.id);
  switch (request.op) {
    case abi::ControlOp::kPut:
    case abi::ControlOp::kAdopt: {
      auto done = put(request, std::move(packet->fds));
      if (done) answer(socket, reply, {}, *done);
      else answer(socket, reply, tl::unexpected(done.error()));
      break;
    }
    case abi::ControlOp::kDrop:
      drop(request.id);
      answer(socket, reply, {});
      break;
    case abi::ControlOp::kList:
      list(socket, request.id, request.list_counters != 0);
      break;
    case abi::ControlOp::kSetOverhead: {
      const auto found = slices_.find(request.id);
      answer(socket, reply,
             found == slices_.end() ? Result<void>(fail(Code::kNotFound, std::string("no slice ") + request.id))
                                    : found->second->set_overhead(request.card_index, request.overhead_bytes));
      break;
    }
  }
  return true;
}

void Server::answer(int socket, abi::ControlReply& reply, const Result<void>& result, const std::vector<int>& fds) {
  reply.magic = abi::kControlMagic;
  reply.abi = abi::kControlAbi;
  if (!result) {
    reply.code = static_cast<std::uint32_t>(result.error().code);
    const std::size_t length = std::min(result.error().what.size(), sizeof reply.text - 1);
    std::memcpy(reply.text, result.error().what.data(), length);
  }
  send_packet(socket, &reply, sizeof reply, fds);
}

Result<std::vector<int>> Server::put(const abi::ControlRequest& request, std::vector<Fd> fds) {
  auto& place = slices_[request.id];
  if (place) {
    CARVE_TRY_VOID(place->set_limits(request));
    return place->kept_descriptors();
  }
  Slice::Descriptors kept;
  if (request.op == abi::ControlOp::kAdopt) {
    if (fds.size() != request.card_count + 1U) {
      slices_.erase(request.id);
      return fail(Code::kInvalidArgument, "adopt: expected one account page per card and one socket");
    }
    kept.listener = std::move(fds.back());
    fds.pop_back();
    kept.accounts = std::move(fds);
  }
  auto slice = Slice::open(shared_, closers_.open(), request, std::move(kept));
  if (!slice) {
    slices_.erase(request.id);
    remains_.insert(request.id);  // some of its files may have been created
    return tl::unexpected(slice.error());
  }
  place = std::move(*slice);
  remains_.erase(request.id);
  return place->kept_descriptors();
}

void Server::drop(const std::string& id) {
  if (remains_.erase(id) != 0) {
    Slice::remove_remains(shared_, id);
    log_.info("remains of an earlier arbiter's slice removed", {{"slice", id}});
  }
  const auto found = slices_.find(id);
  if (found == slices_.end()) return;
  found->second->revoke();
  slices_.erase(found);
  for (Guest& guest : guests_) {
    if (guest.slice == id) guest.leaves();
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
}

void Server::list(int socket, const std::string& after, bool counters) {
  abi::ControlList list = {};
  abi::ControlReply& reply = list.reply;
  const auto found = slices_.upper_bound(after);
  const auto left = remains_.upper_bound(after);
  if (left != remains_.end() && (found == slices_.end() || *left < found->first)) {
    std::memcpy(reply.id, left->c_str(), left->size() + 1);
    reply.remains = reply.card_count = 1;
    reply.more = found != slices_.end() || std::next(left) != remains_.end() ? 1 : 0;
  } else if (found != slices_.end()) {
    found->second->describe(&list);
    reply.more = std::next(found) != slices_.end() || left != remains_.end() ? 1 : 0;
  }
  reply.magic = abi::kControlMagic;
  reply.abi = abi::kControlAbi;
  send_packet(socket, &list, counters ? sizeof list : sizeof reply, {});
}

void Server::accept_guest(Slice& slice) {
  Fd socket(accept4(slice.listener(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) usleep(1000);  // the connection stays in the queue: do not spin on it
    return;
  }
  const auto is_of = [&](const Guest& guest) { return guest.socket && guest.slice == slice.id(); };
  if (std::count_if(guests_.begin(), guests_.end(), is_of) >= static_cast<std::ptrdiff_t>(kMostGuestsOfSlice)) {
    std::find_if(guests_.begin(), guests_.end(), is_of)->leaves();
  }
  guests_.push_back({std::move(socket), slice.id(), now_ns() + kGuestPatienceNs, slice.closer()});
}

/// True if the process may join. A refused process is logged, at most every ten seconds.
bool Server::welcome_in(const std::string& slice, pid_t pid) {
  constexpr std::uint64_t kBetweenWarningsNs = 10'000'000'000;
  if (groups_.may_join(slice, pid)) return true;
  const std::uint64_t now = now_ns();
  if (now >= next_warning_ns_) {
    next_warning_ns_ = now + kBetweenWarningsNs;
    log_.warn("a process outside the slice tried to join it", {{"slice", slice}, {"pid", pid}});
  }
  return false;
}

void Server::greet(Guest& guest) {
  alignas(abi::Hello) char bytes[sizeof(abi::Hello)] = {};
  auto packet = receive_packet(guest.socket.get(), bytes, sizeof bytes);
  abi::Hello hello = {};
  const auto found = slices_.find(guest.slice);
  abi::Welcome welcome = {};
  welcome.magic = abi::kHelloMagic;
  welcome.abi = abi::kPageAbi;
  ucred peer = {};
  socklen_t size = sizeof peer;
  std::vector<Fd> fds;
  Fd lifeline;
  welcome.status = abi::judge_hello(bytes, packet ? packet->size : 0, &hello);
  if (welcome.status == abi::WelcomeStatus::kOk) welcome.abi = std::min(abi::kPageAbi, hello.abi_max);
  if (welcome.status != abi::WelcomeStatus::kOk) {
    // The reply contains only the status.
  } else if (found == slices_.end()) {
    welcome.status = abi::WelcomeStatus::kRevoked;
  } else if (getsockopt(guest.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) {
    welcome.status = abi::WelcomeStatus::kMalformed;
  } else if (!welcome_in(guest.slice, peer.pid)) {
    welcome.status = abi::WelcomeStatus::kForeign;
  } else {
    Slice& slice = *found->second;
    welcome.host_pid = peer.pid;
    slice.free_replaced(peer.pid);
    auto descriptors = slice.tenant_descriptors(hello.kind);
    if (descriptors && hello.kind == abi::LibraryKind::kCuda) {
      if (welcome.abi < abi::kStockAbi) slice.forbid_stock();
      Fd pidfd = pidfd_of(guest.socket.get(), peer.pid);
      auto place = pidfd ? slice.take_entry(peer.pid, std::move(pidfd), (hello.features & abi::kLifelines) != 0)
                         : fail(Code::kUnavailable, "the process has ended");
      welcome.status = place ? abi::WelcomeStatus::kOk : abi::WelcomeStatus::kNoFreeEntry;
      if (place) welcome.entry = place->entry;
      if (place) lifeline = std::move(place->lifeline);
      welcome.instance = ++instances_ == 0 ? ++instances_ : instances_;
    }
    if (!descriptors) {
      log_.error("pages not sent", {{"slice", guest.slice}, {"error", descriptors.error().what}});
      welcome.status = abi::WelcomeStatus::kRevoked;
    } else if (welcome.status == abi::WelcomeStatus::kOk) {
      fds = std::move(*descriptors);
      welcome.card_count = static_cast<std::uint16_t>(fds.size() / 2);
      if (lifeline) {
        welcome.features = abi::kLifelines;
        fds.push_back(std::move(lifeline));
      }
    }
  }
  std::vector<int> numbers;
  for (const Fd& fd : fds) numbers.push_back(fd.get());
  send_packet(guest.socket.get(), &welcome, sizeof welcome, numbers);
  if (packet) {
    for (Fd& sent : packet->fds) guest.closer.take(std::move(sent));
  }
  guest.leaves();
}

Result<void> run(const Options& options, Log& log, const std::stop_token& stop) {
  rlimit files_open = {};  // one pidfd per account entry: raised to the maximum that this process may open
  if (getrlimit(RLIMIT_NOFILE, &files_open) == 0) {
    files_open.rlim_cur = files_open.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files_open);
  }
  const std::string own = options.runtime_folder + "/arbiter";
  const std::pair<std::string, mode_t> folders[] = {
      {options.runtime_folder, 0755}, {options.runtime_folder + "/slices", 0700}, {own, 0700}};
  for (const auto& [folder, mode] : folders) {
    if (mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
      return tl::unexpected(errno_error(errno, "create " + folder));
    }
  }
  CARVE_TRY(Fd control, listen_at(own + "/control", 0600));
  CARVE_TRY(PageFiles files, PageFiles::open(own + "/pages"));
  CARVE_TRY(Lifelines lifelines, Lifelines::open(own + "/lifelines"));
  if (!lifelines.supported()) {
    log.warn("memory that an ended program left to its children is not counted: the kernel gives no leases on files",
             {{"sysctl", "fs.leases-enable"}, {"folder", own + "/lifelines"}});
  }
  return Server(options, log, std::move(files), std::move(lifelines), std::move(control)).run(stop);
}

}  // namespace carve::arbiter
