#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/integration/arbiter/fixture.h"

// The arbiter dies at any time. Running slices continue, and the next arbiter takes them over.
namespace carve::arbiter_test {
namespace {

class RestartTest : public ArbiterTest {
 protected:
  void restart() {
    arbiter_->kill();
    arbiter_->start();
  }
  /// True when an arbiter renews the grants of this page now.
  bool beats(const RawCard& card) {
    const std::uint64_t start = monotonic_ns();
    return eventually([&] { return card.grant->heartbeat_ns.load_relaxed() > start + 30 * kMs; });
  }
};

TEST_F(RestartTest, TheDescriptorsThatTheAgentKeepsAreRestored) {
  put(order("a", 50, ShareClass::kBurst, 2));
  RawClient client = connect("a");
  client.cards[0].entry->used_bytes.store_seq_cst(12345);
  client.cards[1].entry->used_bytes.store_seq_cst(54321);
  restart();
  // The client finds the connection broken, returns the descriptors that it keeps, and retries.
  ASSERT_TRUE(eventually([&] { return listed("a").has_value(); }));
  const auto slice = listed("a");
  EXPECT_EQ(slice->cards[0].announced, Bytes(12345));
  EXPECT_EQ(slice->cards[1].announced, Bytes(54321));
  ASSERT_EQ(slice->processes.size(), 1U);
  EXPECT_EQ(slice->processes[0].pid, getpid());
  EXPECT_TRUE(beats(client.cards[0]));
  EXPECT_TRUE(beats(client.cards[1]));
  RawClient late = connect("a");
  EXPECT_NE(late.welcome.entry, client.welcome.entry) << "an account entry in use was assigned again";
  EXPECT_EQ(late.cards[0].account->entries[client.welcome.entry].used_bytes.load_relaxed(), 12345U)
      << "it got another page";
}

// The parent dies while no arbiter runs. The next arbiter finds the child through the descriptors that it inherited.
TEST_F(RestartTest, MemoryOfAChildOfADeadProcessStaysCharged) {
  put(order("heirs"));
  RawClient watcher = connect("heirs");
  abi::AccountEntry& entry = watcher.card().account->entries[1];
  int heir_of[2];
  ASSERT_EQ(pipe2(heir_of, O_CLOEXEC), 0);
  Child child([&] {
    auto mine = hello(runtime_, "heirs");
    if (!mine || mine->welcome.entry != 1 || mine->lifeline == nullptr) _exit(1);
    mine->card().entry->used_bytes.store_seq_cst(4096);
    const pid_t heir = fork();
    if (heir == 0) {
      for (;;) pause();
    }
    if (write(heir_of[1], &heir, sizeof heir) != sizeof heir) _exit(2);
  });
  pid_t heir = -1;
  ASSERT_EQ(read(heir_of[0], &heir, sizeof heir), static_cast<ssize_t>(sizeof heir));
  ASSERT_TRUE(child.wait_ready());
  arbiter_->kill();
  child.kill();
  arbiter_->start();
  ASSERT_TRUE(eventually([&] { return listed("heirs").has_value(); }));
  EXPECT_EQ(listed("heirs")->cards[0].announced, Bytes(4096));
  ::kill(heir, SIGKILL);
  EXPECT_TRUE(eventually([&] { return entry.used_bytes.load_seq_cst() == 0; }));
  close(heir_of[0]);
  close(heir_of[1]);
}

unsigned rights_of(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
}

TEST_F(RestartTest, PagesInAGatedFolderStayThere) {
  PageOrder nested = order("g");
  nested.in_private_folder = true;
  put(nested);
  const std::string outer = runtime_ + "/slices/g";
  EXPECT_EQ(rights_of(outer), 0700U) << "only for root";
  EXPECT_EQ(rights_of(outer + "/g"), 0755U) << "a container of any user mounts it";
  RawClient client = connect("g/g");
  EXPECT_FALSE(connect_slice(runtime_, "g").has_value());
  agent_.reset();
  restart();
  EXPECT_TRUE(beats(client.card()));
  EXPECT_TRUE(eventually([&] { return connect_slice(runtime_, "g/g").has_value(); })) << "the pages are restored first";
  EXPECT_EQ(rights_of(outer), 0700U);
  agent_.emplace(runtime_ + "/arbiter/control");
  ASSERT_TRUE(agent_->drop("g"));
  EXPECT_FALSE(std::filesystem::exists(outer));

  put(nested);
  restart();  // it has no process, and no agent needs it any more
  agent_.emplace(runtime_ + "/arbiter/control");
  ASSERT_TRUE(eventually([&] { return agent_->drop("g").has_value(); }));
  EXPECT_FALSE(std::filesystem::exists(outer));
}

TEST_F(RestartTest, WithoutAnAgentTheProcessesLeadToTheirPages) {
  PageOrder capped = order("b", 30, ShareClass::kBurst);
  capped.slices[0].ceiling = CoreShare(60);
  put(capped);
  RawClient client = connect("b");
  client.card().entry->used_bytes.store_seq_cst(777);
  agent_.reset();
  restart();
  EXPECT_TRUE(beats(client.card())) << "no agent returned descriptors, but the arbiter must serve its pages again";
  agent_.emplace(runtime_ + "/arbiter/control");
  const auto slice = listed("b");
  ASSERT_TRUE(slice.has_value());
  EXPECT_EQ(slice->cards[0].announced, Bytes(777));
  EXPECT_EQ(client.card().grant->compute_limit.load_relaxed(), 30U);
  EXPECT_EQ(client.card().grant->compute_ceiling.load_relaxed(), 60U);
  RawClient late = connect("b");
  EXPECT_EQ(late.card().account->entries[client.welcome.entry].used_bytes.load_relaxed(), 777U);
}

TEST_F(RestartTest, ASliceWithoutProcessesKeepsItsSocketAndAcceptsNewProcesses) {
  put(order("c"));
  arbiter_->kill();
  auto early = connect_slice(runtime_, "c");
  EXPECT_TRUE(early.has_value()) << "the agent keeps the socket open: a process that connects now waits in its queue";
  arbiter_->start();
  ASSERT_TRUE(eventually([&] { return listed("c").has_value(); }));
  EXPECT_EQ(connect("c").welcome.status, abi::WelcomeStatus::kOk);
}

TEST_F(RestartTest, RepeatedRestartsLoseNothing) {
  put(order("d"));
  RawClient client = connect("d");
  client.card().entry->used_bytes.store_seq_cst(99);
  std::uint32_t epoch = client.card().grant->lease.load_acquire() >> 2;
  for (int i = 0; i < 5; ++i) {
    restart();
    ASSERT_TRUE(eventually([&] { return listed("d").has_value(); })) << "restart " << i;
    ASSERT_TRUE(beats(client.card())) << "restart " << i;
    EXPECT_EQ(listed("d")->cards[0].announced, Bytes(99));
    ASSERT_EQ(connect("d").welcome.status, abi::WelcomeStatus::kOk) << "restart " << i;
    const std::uint32_t now = client.card().grant->lease.load_acquire() >> 2;
    EXPECT_GT(now, epoch) << "epochs never decrease";
    epoch = now;
  }
}

TEST_F(RestartTest, TimeBeforeTheRestartIsNotChargedAgain) {
  put(order("e"));
  RawClient client = connect("e");
  client.card().entry->busy_ns.store_seq_cst(500'000 * kMs);
  ASSERT_TRUE(beats(client.card()));
  restart();
  ASSERT_TRUE(eventually([&] { return listed("e").has_value(); }));
  put(order("f"));
  RawClient other = connect("f");
  client.card().entry->want.store_seq_cst(1);
  ring(client.card());
  ASSERT_TRUE(eventually([&] { return mode_of(client.card()) != abi::LeaseMode::kBlocked; }));
  // From now on the neighbour works all the time. If the first slice's past were charged again, it would wait for
  // minutes.
  client.card().entry->want.store_seq_cst(0);
  other.card().entry->want.store_seq_cst(1);
  Works worker(other.card());
  ASSERT_TRUE(eventually([&] { return mode_of(other.card()) != abi::LeaseMode::kBlocked; }));
  client.card().entry->want.store_seq_cst(1);
  ring(client.card());
  EXPECT_TRUE(eventually([&] { return mode_of(client.card()) != abi::LeaseMode::kBlocked; }, 200 * kMs));
}

TEST_F(RestartTest, AProcessThatDiedMeanwhileIsForgotten) {
  put(order("g"));
  RawClient watcher = connect("g");
  Child child([&] {
    auto mine = hello(runtime_, "g");
    if (!mine) _exit(1);
    mine->card().entry->used_bytes.store_seq_cst(1 << 20);
  });
  ASSERT_TRUE(child.wait_ready());
  arbiter_->kill();
  child.kill();
  arbiter_->start();
  EXPECT_TRUE(eventually([&] {
    const auto slice = listed("g");
    return slice && slice->cards[0].announced == Bytes() && slice->processes.size() == 1;
  }));
}

TEST_F(RestartTest, NoAccountEntryIsLeftOutOfTheSumsDuringATakeover) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the arbiter is forked while another thread observes it, which ThreadSanitizer does not support";
#endif
  put(order("l"));
  Child first([&] {
    if (!hello(runtime_, "l")) _exit(1);
  });
  ASSERT_TRUE(first.wait_ready());
  RawClient client = connect("l");
  ASSERT_EQ(client.welcome.entry, 1U);
  arbiter_->kill();
  first.kill();
  std::atomic<bool> stop{false};
  std::uint32_t least = 2;
  std::thread neighbour([&] {
    while (!stop) least = std::min(least, client.card().grant->high_entry.load_seq_cst());
  });
  arbiter_->start();
  EXPECT_TRUE(eventually([&] {
    const auto slice = listed("l");
    return slice && slice->processes.size() == 1;
  }));
  stop = true;
  neighbour.join();
  EXPECT_EQ(least, 2U) << "for a moment the running process's bytes did not count against the limit";
}

TEST_F(RestartTest, AForgedAccountPageIsNotMistakenForTheRealOne) {
  put(order("h"));
  RawClient client = connect("h");
  client.card().entry->used_bytes.store_seq_cst(4242);
  munmap(client.lifeline, abi::kLifelineBytes);  // the next processes would inherit it
  // Other processes, with lower and higher PIDs, map forged pages with the right name, size and seals.
  std::vector<Child> forgers;
  for (int i = 0; i < 2; ++i) {
    forgers.emplace_back([] {
      const int fd = memfd_create("carve-account-h-0", MFD_ALLOW_SEALING);
      if (ftruncate(fd, abi::kAccountPageBytes) != 0) _exit(1);
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
      if (mmap(nullptr, abi::kAccountPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) _exit(1);
    });
    ASSERT_TRUE(forgers.back().wait_ready());
  }
  Child own([&] {  // the only genuine one, started after the forgers
    auto mine = hello(runtime_, "h");
    if (!mine) _exit(1);
    mine->card().entry->used_bytes.store_seq_cst(1000);
  });
  ASSERT_TRUE(own.wait_ready());
  for (RawCard& card : client.cards) munmap(card.account, abi::kAccountPageBytes);
  client.cards.clear();
  agent_.reset();
  restart();
  agent_.emplace(runtime_ + "/arbiter/control");
  ASSERT_TRUE(eventually([&] { return listed("h").has_value(); }));
  EXPECT_EQ(listed("h")->cards[0].announced, Bytes(1000)) << "our bytes left with the mapping; the child's must stay";
}

TEST_F(RestartTest, AStoppedArbiterIsADeadlineNotAHang) {
  put(order("i"));
  kill(arbiter_->pid(), SIGSTOP);
  const std::uint64_t start = monotonic_ns();
  const auto answer = agent_->list();
  const std::uint64_t took = monotonic_ns() - start;
  kill(arbiter_->pid(), SIGCONT);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kDeadlineExceeded) << answer.error().what;
  EXPECT_LT(took, 3'000 * kMs);
  EXPECT_TRUE(eventually([&] { return listed("i").has_value(); }));
  arbiter_->kill();
  const auto gone = agent_->list();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kUnavailable) << gone.error().what;
  arbiter_->start();
}

TEST_F(RestartTest, ASecondArbiterOnTheSameFolderIsRefused) {
  put(order("j"));
  ArbiterChild second(runtime_);
  EXPECT_TRUE(eventually([&] { return !second.alive(); }));
  EXPECT_TRUE(listed("j").has_value());
}

TEST_F(RestartTest, ACleanStopLeavesRunningSlicesTheirLease) {
  put(order("k"));
  RawClient client = connect("k");
  ASSERT_TRUE(eventually([&] { return mode_of(client.card()) == abi::LeaseMode::kSolo; }));
  EXPECT_TRUE(arbiter_->stop_nicely());
  EXPECT_EQ(mode_of(client.card()), abi::LeaseMode::kSolo);
  EXPECT_EQ(client.card().grant->revoked.load_relaxed(), 0U);
  EXPECT_EQ(client.card().grant->heartbeat_ns.load_relaxed(), 0U) << "the client waits for 200 ms";
  arbiter_->start();
  EXPECT_TRUE(beats(client.card()));
}

}  // namespace
}  // namespace carve::arbiter_test
