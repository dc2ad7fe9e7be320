#include "tests/integration/arbiter/raw_client.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "arbiter/arbiter.h"

namespace carve::arbiter_test {
namespace {

void pause_ns(long ns) {
  const timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&t, nullptr);
}

std::vector<Fd> descriptors_of(msghdr& message) {
  std::vector<Fd> fds;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

bool receive_welcome(int socket, abi::Welcome* welcome, std::vector<Fd>* fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))];
  iovec data{welcome, sizeof *welcome};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got > 0) *fds = descriptors_of(message);
  return got == sizeof *welcome;
}

}  // namespace

std::optional<Fd> connect_slice(const std::string& runtime, const std::string& id) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s/slices/%s/s", runtime.c_str(), id.c_str());
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const timeval patience{2, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  return fd;
}

std::optional<RawClient> hello(const std::string& runtime, const std::string& id, abi::LibraryKind kind,
                               std::uint16_t abi_max, std::optional<std::uint16_t> abi_min, std::uint32_t features) {
  auto socket = connect_slice(runtime, id);
  const abi::Hello words{abi::kHelloMagic, abi_min.value_or(abi_max), abi_max, kind, features};
  RawClient client;
  std::vector<Fd> fds;
  if (!socket || send(socket->get(), &words, sizeof words, MSG_NOSIGNAL) < 0 ||
      !receive_welcome(socket->get(), &client.welcome, &fds)) {
    return std::nullopt;
  }
  if (client.welcome.features & abi::kLifelines) {
    void* lifeline = mmap(nullptr, abi::kLifelineBytes, PROT_NONE, MAP_SHARED, fds.back().get(), 0);
    if (lifeline != MAP_FAILED) client.lifeline = lifeline;
    fds.pop_back();
  }
  for (std::size_t i = 0; i + 1 < fds.size(); i += 2) {
    RawCard card;
    card.grant_fd = std::move(fds[i]);
    card.account_fd = std::move(fds[i + 1]);
    void* grant = mmap(nullptr, abi::kGrantPageBytes, PROT_READ, MAP_SHARED, card.grant_fd.get(), 0);
    if (grant != MAP_FAILED) card.grant = static_cast<const abi::GrantPage*>(grant);
    void* account =
        mmap(nullptr, abi::kAccountPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, card.account_fd.get(), 0);
    if (account != MAP_FAILED) {
      card.account = static_cast<abi::AccountPage*>(account);
      card.entry = &card.account->entries[client.welcome.entry];
      card.entry->host_pid.store_relaxed(static_cast<std::uint64_t>(client.welcome.host_pid));
      card.entry->instance.store_release(client.welcome.instance);
    }
    client.cards.push_back(std::move(card));
  }
  return client;
}

std::optional<abi::Welcome> say(const std::string& runtime, const std::string& id, const std::string& bytes) {
  auto socket = connect_slice(runtime, id);
  abi::Welcome welcome{};
  std::vector<Fd> fds;
  if (!socket) return std::nullopt;
  send(socket->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (!receive_welcome(socket->get(), &welcome, &fds)) return std::nullopt;
  return welcome;
}

void ring(RawCard& card) {
  card.account->doorbell.fetch_add(1);
  syscall(SYS_futex, &card.account->doorbell.raw, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

abi::LeaseMode mode_of(const RawCard& card) {
  return static_cast<abi::LeaseMode>(card.grant->lease.load_acquire() & 3U);
}

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

bool eventually(const std::function<bool()>& condition, std::uint64_t most_ns) {
  const std::uint64_t end = monotonic_ns() + most_ns;
  while (!condition()) {
    if (monotonic_ns() > end) return false;
    pause_ns(200'000);
  }
  return true;
}

Works::Works(RawCard& card, std::uint64_t piece_ns)
    : card_(card), piece_ns_(piece_ns), before_ns_(card.entry->busy_ns.load_relaxed()), thread_([this] { run(); }) {}

Works::~Works() {
  stop_ = true;
  thread_.join();
}

void Works::run() {
  abi::AccountEntry& entry = *card_.entry;
  std::uint64_t busy = entry.busy_ns.load_relaxed();
  const auto may_launch = [&] {
    const abi::LeaseMode mode = mode_of(card_);
    return mode == abi::LeaseMode::kSolo ||
           (mode == abi::LeaseMode::kLease && monotonic_ns() < card_.grant->end_ns.load_relaxed());
  };
  while (!stop_) {
    if (!may_launch()) {
      entry.want.store_seq_cst(1);
      ring(card_);
      while (!stop_ && !may_launch()) pause_ns(50'000);
    }
    const std::uint64_t start = monotonic_ns();
    entry.anchor_ns.store_seq_cst(start);
    entry.inflight_ns.store_seq_cst(piece_ns_);
    entry.busy.store_seq_cst(1);
    entry.want.store_seq_cst(0);
    pause_ns(static_cast<long>(piece_ns_));
    busy += monotonic_ns() - start;
    entry.anchor_ns.store_seq_cst(monotonic_ns());
    entry.busy_ns.store_seq_cst(busy);
    entry.inflight_ns.store_seq_cst(0);
    entry.busy.store_seq_cst(0);
  }
  entry.want.store_seq_cst(0);
}

Child::Child(const std::function<void()>& body) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    body();
    if (write(ends[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  ::close(ends[1]);
  ready_.reset(ends[0]);
}

bool Child::wait_ready() {
  char c = 0;
  return read(ready_.get(), &c, 1) == 1;
}

void Child::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string make_runtime() {
  static const bool own_mounts = [] {
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }();
  if (!own_mounts) return "";
  char folder[] = "/tmp/carve-arbiter-XXXXXX";
  if (!mkdtemp(folder)) return "";
  chmod(folder, 0755);
  return folder;
}

ArbiterChild::ArbiterChild(std::string runtime, std::string trace)
    : runtime_(std::move(runtime)), trace_(std::move(trace)) {
  start();
}

void ArbiterChild::start() {
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, nullptr);
  std::stop_source stop;
  std::thread([&] {
    int signal = 0;
    sigwait(&term, &signal);
    stop.request_stop();
  }).detach();
  Log log;
  arbiter::Options options;
  options.runtime_folder = runtime_;
  options.trace_path = trace_;
  const auto done = arbiter::run(options, log, stop.get_token());
  if (!done) std::fprintf(stderr, "arbiter: %s\n", done.error().what.c_str());
  std::fflush(nullptr);
  _exit(done ? 0 : 1);
}

void ArbiterChild::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool ArbiterChild::stop_nicely() {
  ::kill(pid_, SIGTERM);
  int status = 0;
  const bool ended = eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) kill();
  pid_ = -1;
  return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ArbiterChild::alive() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

std::uint64_t ArbiterChild::cpu_ns() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  std::istringstream words(text.substr(text.rfind(')') + 2));
  std::string word;
  std::uint64_t ticks = 0;
  for (int i = 3; words >> word; ++i) {
    if (i == 14 || i == 15) ticks += std::stoull(word);
  }
  return ticks * (1'000'000'000U / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
}

}  // namespace carve::arbiter_test
