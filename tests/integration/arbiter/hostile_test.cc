#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <random>
#include <thread>

#include "adapter/process/testing/slow_file.h"
#include "arbiter/closer.h"
#include "arbiter/wire.h"
#include "tests/integration/arbiter/fixture.h"

// What a tenant may do with its descriptors and pages: nothing affects its neighbour for longer than a second.
namespace carve::arbiter_test {
namespace {

class HostileTest : public ArbiterTest {
 protected:
  void SetUp() override {
    ArbiterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    put(order("bad"));
    put(order("good"));
    bad_ = connect("bad");
    good_ = connect("good");
    ASSERT_FALSE(bad_.cards.empty() || good_.cards.empty());
  }
  /// The share of the card that the neighbour gets while `attack` is repeated. The neighbour always has work.
  double share_while(const std::function<void()>& attack, std::uint64_t ns = 1'000 * kMs) {
    Works works(good_.card());
    const std::uint64_t start = monotonic_ns();
    while (monotonic_ns() - start < ns) attack();
    return static_cast<double>(works.busy_ns()) / static_cast<double>(monotonic_ns() - start);
  }
  [[nodiscard]] std::size_t open_files() const {  // open files of the arbiter
    const std::filesystem::directory_iterator all("/proc/" + std::to_string(arbiter_->pid()) + "/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  RawClient bad_;
  RawClient good_;
};

TEST_F(HostileTest, AStoppedLeaseHolderDelaysTheOthersOnlyOnce) {
  // It has the card, a second of work in flight and more to come. Then it stops responding.
  Child holder([&] {
    auto mine = hello(runtime_, "bad");
    if (!mine) _exit(1);
    abi::AccountEntry& entry = *mine->card().entry;
    entry.anchor_ns.store_seq_cst(monotonic_ns());
    entry.inflight_ns.store_seq_cst(1'000 * kMs);
    entry.busy.store_seq_cst(1);
    entry.want.store_seq_cst(1);
    ring(mine->card());
    if (!eventually([&] { return mode_of(mine->card()) != abi::LeaseMode::kBlocked; })) _exit(1);
  });
  ASSERT_TRUE(holder.wait_ready());
  ASSERT_EQ(kill(holder.pid(), SIGSTOP), 0);
  const std::uint64_t start = monotonic_ns();
  good_.card().entry->want.store_seq_cst(1);
  ring(good_.card());
  ASSERT_TRUE(eventually([&] { return mode_of(good_.card()) != abi::LeaseMode::kBlocked; }));
  // A lease of 12 ms, 6 ms for its work to drain, at most 20 ms for a step, and this machine's own delays.
  EXPECT_LT(monotonic_ns() - start, 80 * kMs);
}

TEST_F(HostileTest, ASliceThatRequestsAndNeverLaunchesTakesNoMoreThanItsShare) {
  bad_.card().entry->want.store_seq_cst(1);
  ring(bad_.card());
  const double share = share_while([] { usleep(1000); }, 2'000 * kMs);
  EXPECT_GT(share, 0.40) << "the neighbour's share is half of the card";
}

TEST_F(HostileTest, ASliceThatHidesItsTimeTakesNoMoreThanItsShare) {
  // It honours its grants and shows work, but never reports for how long.
  std::atomic<bool> stop{false};
  std::thread liar([&] {
    abi::AccountEntry& entry = *bad_.card().entry;
    while (!stop) {
      entry.want.store_seq_cst(1);
      ring(bad_.card());
      if (!eventually([&] { return stop || mode_of(bad_.card()) != abi::LeaseMode::kBlocked; })) continue;
      entry.anchor_ns.store_seq_cst(monotonic_ns());
      entry.inflight_ns.store_seq_cst(kMs);
      entry.busy.store_seq_cst(1);
      usleep(1000);
      entry.busy.store_seq_cst(0);
    }
  });
  const double share = share_while([] { usleep(1000); }, 2'000 * kMs);
  stop = true;
  liar.join();
  EXPECT_GT(share, 0.35) << "the neighbour's share is half of the card";
}

TEST_F(HostileTest, ARepeatedlyRescuedSliceTakesLittleAndTheAgentSeesIt) {
  // Work that never ends, such as a host function that does not return, and a launch that waits.
  abi::AccountEntry& entry = *bad_.card().entry;
  entry.anchor_ns.store_seq_cst(monotonic_ns());
  entry.inflight_ns.store_seq_cst(kMs);
  entry.busy.store_seq_cst(1);
  entry.want.store_seq_cst(1);
  ring(bad_.card());
  const double share = share_while([] { usleep(1000); }, 2'000 * kMs);
  EXPECT_GT(share, 0.40) << "the neighbour's share is half of the card";
  const auto bad = listed("bad");
  ASSERT_TRUE(bad && bad->cards.size() == 1);
  EXPECT_GE(bad->cards[0].rescues, 2U);
  EXPECT_LE(bad->cards[0].rescues, 25U) << "no more than a tenth of the card, in leases of 12 ms";
  const auto good = listed("good");
  ASSERT_TRUE(good && good->cards.size() == 1);
  EXPECT_EQ(good->cards[0].rescues, 0U);
  ASSERT_TRUE(bad->cards[0].counters);
  EXPECT_GE(bad->cards[0].counters->waited_ns, 1'000 * kMs) << "between its rescues";
}

TEST_F(HostileTest, AStormOfRingsHarmsNeitherTheNeighbourNorTheNode) {
  std::atomic<bool> stop{false};
  std::thread storm([&] {
    while (!stop) ring(bad_.card());
  });
  const std::uint64_t before = arbiter_->cpu_ns();
  const double share = share_while([] { usleep(1000); });
  const std::uint64_t used = arbiter_->cpu_ns() - before;
  stop = true;
  storm.join();
  EXPECT_GT(share, 0.5) << "the storm, the worker and the arbiter share two cores";
  // The pause between two steps leaves room for 20,000 steps per second, of 10 us on a fast processor and 18 us on a
  // thread that shares its core with the storm. Without the pause the arbiter takes the whole second.
  EXPECT_LT(used, 600 * kMs) << "per second of storm";
}

TEST_F(HostileTest, NoiseInTheAccountPageAffectsOnlyItsSlice) {
  std::mt19937_64 random(7);
  auto* words = reinterpret_cast<std::uint64_t*>(bad_.card().account);
  const double share = share_while([&] {
    for (int i = 0; i < 64; ++i) {
      __atomic_store_n(&words[random() % (abi::kAccountPageBytes / 8)], random() >> (random() % 64), __ATOMIC_RELAXED);
    }
    usleep(100);
  });
  EXPECT_GT(share, 0.35) << "the noise claims that its slice works all the time; half of the card is the neighbour's";
  ASSERT_TRUE(arbiter_->alive());
  EXPECT_TRUE(eventually([&] { return connect("bad").welcome.status == abi::WelcomeStatus::kOk; }))
      << "the next process of the noisy slice gets a valid page";
  EXPECT_EQ(connect("bad").card().account->magic, abi::kAccountMagic);
}

TEST_F(HostileTest, AnEmptiedPageIsAnEmptyPage) {
  const int fd = bad_.card().account_fd.get();
  const double share = share_while([&] {
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, abi::kAccountPageBytes);
    usleep(500);
  });
  EXPECT_GT(share, 0.7);
  EXPECT_TRUE(arbiter_->alive());
  EXPECT_EQ(connect("bad").card().account->magic, abi::kAccountMagic);
}

TEST_F(HostileTest, AMessageThatIsNoHelloGetsOnlyAnError) {
  const abi::Hello right{abi::kHelloMagic, abi::kPageAbiMin, abi::kPageAbi, abi::LibraryKind::kCuda, 0};
  std::string bytes(reinterpret_cast<const char*>(&right), sizeof right);
  for (const std::string& wrong : {bytes.substr(0, 15), bytes + "x", std::string(16, '\0'), std::string(60'000, 'x'),
                                   std::string("GET /")}) {
    const auto answer = say(runtime_, "bad", wrong);
    ASSERT_TRUE(answer.has_value()) << wrong.size();
    EXPECT_EQ(answer->status, abi::WelcomeStatus::kMalformed) << wrong.size();
    EXPECT_EQ(answer->card_count, 0);
  }
  bytes[8] = 9;  // a kind of library that does not exist
  EXPECT_EQ(say(runtime_, "bad", bytes)->status, abi::WelcomeStatus::kMalformed);
  EXPECT_EQ(connect("bad").welcome.status, abi::WelcomeStatus::kOk);
}

TEST_F(HostileTest, ASilentConnectionDelaysNoOtherProcess) {
  std::vector<Fd> silent;
  for (int i = 0; i < 600; ++i) {
    auto fd = connect_slice(runtime_, "bad");
    if (fd) silent.push_back(std::move(*fd));
    if (i % 100 != 0) continue;
    const std::uint64_t start = monotonic_ns();
    ASSERT_EQ(connect("good").welcome.status, abi::WelcomeStatus::kOk);
    EXPECT_LT(monotonic_ns() - start, 300 * kMs) << "after " << silent.size() << " silent connections elsewhere";
  }
  const std::uint64_t start = monotonic_ns();
  EXPECT_EQ(connect("bad").welcome.status, abi::WelcomeStatus::kOk) 
      << "a silent connection must not block its own slice either";
  EXPECT_LT(monotonic_ns() - start, 1'500 * kMs);
}

TEST_F(HostileTest, DescriptorsInAHelloAreClosed) {
  const std::size_t before = open_files();
  for (int i = 0; i < 50; ++i) {
    auto socket = connect_slice(runtime_, "bad");
    ASSERT_TRUE(socket.has_value());
    alignas(cmsghdr) char control[CMSG_SPACE(20 * sizeof(int))] = {};
    char byte = 'x';
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(20 * sizeof(int));
    for (int k = 0; k < 20; ++k) std::memcpy(CMSG_DATA(header) + 4 * k, "\0\0\0\0", 4);  // stdin, twenty times
    ASSERT_EQ(sendmsg(socket->get(), &message, MSG_NOSIGNAL), 1);
    char answer[64];
    recv(socket->get(), answer, sizeof answer, 0);
  }
  EXPECT_TRUE(eventually([&] { return open_files() <= before; })) << open_files() << ", before: " << before;
}

/// A TCP connection. Its local end takes a minute to close, because the remote end reads nothing.
struct Lingering {
  Fd near;
  Fd far;
};

Lingering lingering() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0) << std::strerror(errno);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Lingering ends;
  ends.near = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(ends.near.get(), reinterpret_cast<sockaddr*>(&address), size), 0) << std::strerror(errno);
  ends.far = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger minute{1, 60};
  EXPECT_EQ(setsockopt(ends.near.get(), SOL_SOCKET, SO_LINGER, &minute, sizeof minute), 0);
  const std::string bytes(64 << 10, 'x');
  while (send(ends.near.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  return ends;
}

TEST_F(HostileTest, ADescriptorThatClosesSlowlyDelaysOnlyItsSender) {
  constexpr abi::LibraryKind kNvml = abi::LibraryKind::kNvml;  // takes no account entry, so no pidfd stays open
  const std::size_t before = open_files();
  std::vector<Fd> far;
  // In place of a hello, and behind it, where no code reads it. The arbiter handles them when it has the only
  // references.
  kill(arbiter_->pid(), SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    const auto socket = connect_slice(runtime_, "bad");
    ASSERT_TRUE(socket.has_value());
    for (int k = 0; k <= i; ++k) {
      Lingering ends = lingering();
      EXPECT_TRUE(arbiter::send_packet(socket->get(), "x", 1, {ends.near.get()}));
      far.push_back(std::move(ends.far));
    }
  }
  kill(arbiter_->pid(), SIGCONT);
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t start = monotonic_ns();
    EXPECT_TRUE(agent_->list().has_value());
    EXPECT_EQ(connect("good", kNvml).welcome.status, abi::WelcomeStatus::kOk);
    EXPECT_LT(monotonic_ns() - start, 500 * kMs);
    usleep(50'000);
  }
  // It continues: the arbiter accepts no more than the sender's share.
  for (std::size_t i = 0; i < 4 * arbiter::Closer::kMost; ++i) {
    const auto socket = connect_slice(runtime_, "bad");
    if (socket) arbiter::send_packet(socket->get(), "x", 1, {STDIN_FILENO});
    if (i % 32 == 0) usleep(10'000);
  }
  EXPECT_EQ(connect("good", kNvml).welcome.status, abi::WelcomeStatus::kOk);
  EXPECT_LT(open_files(), before + 4 * arbiter::Closer::kMost);
  EXPECT_TRUE(agent_->drop("bad")) << "the slice's removal does not wait for that";
  EXPECT_TRUE(listed("good").has_value());
  far.clear();  // the other end resets: no close waits any more
  // The listener, the page and the process, which were open before, are closed too.
  EXPECT_TRUE(eventually([&] { return open_files() + 3 <= before; })) << open_files() << ", before: " << before;
}

// Such a process holds a lock of the kernel that each look into its mappings takes (exec_update_lock).
TEST_F(HostileTest, AProcessThatIsBlockedInExecDelaysOnlyItself) {
  std::optional<Child> stuck;  // its death waits for the file's end
  process::SlowFile file(runtime_ + "/slow");
  if (!file.mounted()) GTEST_SKIP() << "SKIPPED: no file system in user space here";
  stuck.emplace([&] {
    auto mine = hello(runtime_, "bad");
    if (!mine) _exit(1);
    if (open(file.path().c_str(), O_RDONLY | O_CLOEXEC) < 0) _exit(2);
    execl("/bin/sleep", "sleep", "60", nullptr);
    _exit(3);
  });
  ASSERT_TRUE(file.wait_for_close());
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t start = monotonic_ns();
    Child child([&] {
      auto mine = hello(runtime_, "good");
      if (!mine) _exit(1);
      mine->card().entry->used_bytes.store_seq_cst(4096);
    });
    ASSERT_TRUE(child.wait_ready());
    EXPECT_EQ(listed("good")->cards[0].announced, Bytes(4096));
    child.kill();
    EXPECT_TRUE(eventually([&] { return listed("good")->cards[0].announced == Bytes(); })) << "its death was not seen";
    EXPECT_LT(monotonic_ns() - start, 500 * kMs);
  }
  arbiter_->kill();
  arbiter_->start();
  EXPECT_TRUE(eventually([&] { return listed("good").has_value(); }, 8'000 * kMs)) << "the next arbiter does not serve";
  EXPECT_EQ(connect("good").welcome.status, abi::WelcomeStatus::kOk);
}

}  // namespace
}  // namespace carve::arbiter_test
