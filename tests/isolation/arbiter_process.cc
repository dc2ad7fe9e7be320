#include "tests/isolation/arbiter_process.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stop_token>
#include <thread>

#include "arbiter/arbiter.h"
#include "tests/isolation/slice_fixture.h"

namespace carve::isolation {

namespace {

Fd connect_control() {
  for (int attempt = 0; attempt < 500; ++attempt) {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "/run/carve/arbiter/control");
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return fd;
    }
    usleep(10'000);
  }
  return Fd();
}

}  // namespace

ArbiterProcess::ArbiterProcess(const std::string& trace) : trace_(trace) { start(); }

void ArbiterProcess::start() {
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) std::abort();  // kill(-1, …) would end every process of the machine
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Log log;
    arbiter::Options options;
    options.trace_path = trace_;
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, nullptr);
    std::stop_source stop;
    std::jthread waits([&] {
      int signal = 0;
      sigwait(&term, &signal);
      stop.request_stop();
    });
    const Result<void> done = arbiter::run(options, log, stop.get_token());
    if (!done) std::fprintf(stderr, "arbiter: %s\n", done.error().what.c_str());
    _exit(done ? 0 : 1);
  }
  socket_ = connect_control();
}

void ArbiterProcess::stop() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
  socket_ = Fd();
}

ArbiterProcess::~ArbiterProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  kill(pid_, SIGCONT);
  waitpid(pid_, nullptr, 0);
}

std::string ArbiterProcess::ask(const abi::ControlRequest& request, abi::ControlReply* reply) {
  *reply = {};
  if (send(socket_.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
    return std::string("send: ") + std::strerror(errno);
  }
  alignas(cmsghdr) char control[CMSG_SPACE(17 * sizeof(int))];
  iovec part{reply, sizeof *reply};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC) <= 0) {
    return "no reply";
  }
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      kept_.emplace_back(fd);
    }
  }
  return reply->code == 0 ? "" : reply->text[0] != 0 ? reply->text : "refused";
}

namespace {

abi::ControlRequest request_of(abi::ControlOp op, const std::string& id) {
  abi::ControlRequest request{};
  request.magic = abi::kControlMagic;
  request.abi = abi::kControlAbi;
  request.op = op;
  std::snprintf(request.id, sizeof request.id, "%s", id.c_str());
  return request;
}

}  // namespace

std::string ArbiterProcess::put(const std::string& id, const abi::ControlCard& card) {
  abi::ControlRequest request = request_of(abi::ControlOp::kPut, id);
  request.card_count = 1;
  request.cards[0] = card;
  abi::ControlReply reply;
  return ask(request, &reply);
}

std::string ArbiterProcess::drop(const std::string& id) {
  abi::ControlReply reply;
  return ask(request_of(abi::ControlOp::kDrop, id), &reply);
}

std::uint64_t ArbiterProcess::announced_bytes(const std::string& id) {
  std::string after;
  for (;;) {
    abi::ControlReply reply;
    if (!ask(request_of(abi::ControlOp::kList, after), &reply).empty() || reply.card_count == 0) {
      return ~std::uint64_t{0};
    }
    if (id == reply.id) {
      return reply.cards[0].announced_bytes;
    }
    after = reply.id;
  }
}

abi::ControlCard card_of(std::uint64_t memory, std::uint32_t compute, abi::ShareClass share,
                         abi::PriorityClass priority) {
  abi::ControlCard card{};
  std::snprintf(card.uuid, sizeof card.uuid, "%s", card_uuid().c_str());
  card.memory_limit = memory;
  card.context_bytes = 105 * kMiB;
  card.compute = compute;
  card.share = share;
  card.priority = priority;
  return card;
}

void see_only(const std::string& id) {
  const std::string view = "/mnt/view-" + id + "-" + std::to_string(getpid());
  if (unshare(CLONE_NEWNS) != 0 || mkdir(view.c_str(), 0755) != 0 || mkdir((view + "/" + id).c_str(), 0755) != 0 ||
      mount(("/run/carve/slices/" + id).c_str(), (view + "/" + id).c_str(), nullptr, MS_BIND, nullptr) != 0 ||
      mount(view.c_str(), "/run/carve/slices", nullptr, MS_BIND | MS_REC, nullptr) != 0) {
    std::perror("see_only");
    std::abort();
  }
}

pid_t spin_in(const std::string& slice, const std::vector<std::string>& flags) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    see_only(slice);
    unsetenv("LD_LIBRARY_PATH");
    std::vector<std::string> words = {CARVE_SPIN, "--seconds", "600"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    if (freopen("/dev/null", "w", stdout) != nullptr) {
      execv(CARVE_SPIN, argv.data());
    }
    _exit(127);
  }
  return pid;
}

}  // namespace carve::isolation
