#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/integration/arbiter/fixture.h"

// What a tenant may do with what it was handed: none of it reaches its neighbour for longer than a second.
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
  /// How much of a card-second the neighbour gets done in so long, while `attack` is repeated.
  double share_while(const std::function<void()>& attack, std::uint64_t ns = 1'000 * kMs) {
    Works works(good_.card());
    const std::uint64_t start = monotonic_ns();
    while (monotonic_ns() - start < ns) attack();
    return static_cast<double>(works.done()) * kMs / static_cast<double>(ns);
  }
  RawClient bad_;
  RawClient good_;
};

TEST_F(HostileTest, ALeaseHolderThatIsStoppedIsWaitedForOnce) {
  // It has the card, a second of work in flight and more to come; then nothing more is heard of it.
  Child holder([&] {
    auto mine = hello(runtime_, "bad");
    if (!mine) _exit(1);
    abi::AccountSlot& slot = *mine->card().slot;
    slot.anchor_ns.store_seq_cst(monotonic_ns());
    slot.inflight_ns.store_seq_cst(1'000 * kMs);
    slot.busy.store_seq_cst(1);
    slot.want.store_seq_cst(1);
    ring(mine->card());
    if (!eventually([&] { return mode_of(mine->card()) != abi::LeaseMode::kBlocked; })) _exit(1);
  });
  ASSERT_TRUE(holder.wait_ready());
  ASSERT_EQ(kill(holder.pid(), SIGSTOP), 0);
  const std::uint64_t start = monotonic_ns();
  good_.card().slot->want.store_seq_cst(1);
  ring(good_.card());
  ASSERT_TRUE(eventually([&] { return mode_of(good_.card()) != abi::LeaseMode::kBlocked; }));
  // A lease of 12 ms, 6 ms for its work to drain, a step of 20 ms at the worst, and this machine's own delays.
  EXPECT_LT(monotonic_ns() - start, 80 * kMs);
}

TEST_F(HostileTest, ASliceThatWantsAndNeverLaunchesTakesNoMoreThanItsShare) {
  bad_.card().slot->want.store_seq_cst(1);
  ring(bad_.card());
  const double share = share_while([] { usleep(1000); }, 2'000 * kMs);
  EXPECT_GT(share, 0.40) << "the neighbour was promised half of the card";
}

TEST_F(HostileTest, ASliceThatHidesItsTimeTakesNoMoreThanItsShare) {
  // It honours its grants, is seen to work, and never says for how long.
  std::atomic<bool> stop{false};
  std::thread liar([&] {
    abi::AccountSlot& slot = *bad_.card().slot;
    while (!stop) {
      slot.want.store_seq_cst(1);
      ring(bad_.card());
      if (!eventually([&] { return stop || mode_of(bad_.card()) != abi::LeaseMode::kBlocked; })) continue;
      slot.anchor_ns.store_seq_cst(monotonic_ns());
      slot.inflight_ns.store_seq_cst(kMs);
      slot.busy.store_seq_cst(1);
      usleep(1000);
      slot.busy.store_seq_cst(0);
    }
  });
  const double share = share_while([] { usleep(1000); }, 2'000 * kMs);
  stop = true;
  liar.join();
  EXPECT_GT(share, 0.35) << "the neighbour was promised half of the card";
}

TEST_F(HostileTest, AStormOfRingsCostsNeitherTheNeighbourNorTheNode) {
  std::atomic<bool> stop{false};
  std::thread storm([&] {
    while (!stop) ring(bad_.card());
  });
  const std::uint64_t before = arbiter_->cpu_ns();
  const double share = share_while([] { usleep(1000); });
  const std::uint64_t used = arbiter_->cpu_ns() - before;
  stop = true;
  storm.join();
  EXPECT_GT(share, 0.5) << "two cores are shared by the storm, the worker and the arbiter";
  EXPECT_LT(used, 350 * kMs) << "per second of storm";
}

TEST_F(HostileTest, NoiseInTheAccountPageStaysWithItsSlice) {
  std::mt19937_64 random(7);
  auto* words = reinterpret_cast<std::uint64_t*>(bad_.card().account);
  const double share = share_while([&] {
    for (int i = 0; i < 64; ++i) {
      __atomic_store_n(&words[random() % (abi::kAccountPageBytes / 8)], random() >> (random() % 64), __ATOMIC_RELAXED);
    }
    usleep(100);
  });
  EXPECT_GT(share, 0.35) << "the noise says that its slice works all the time; half of the card is the neighbour's";
  ASSERT_TRUE(arbiter_->alive());
  EXPECT_TRUE(eventually([&] { return connect("bad").welcome.status == abi::WelcomeStatus::kOk; }))
      << "the next process of the noisy slice finds a page that is one";
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

TEST_F(HostileTest, WhatIsNoHelloIsToldSoAndNothingElse) {
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

TEST_F(HostileTest, WhoConnectsAndSaysNothingKeepsNobodyWaiting) {
  std::vector<Fd> silent;
  for (int i = 0; i < 600; ++i) {
    auto fd = connect_slice(runtime_, "bad");
    if (fd) silent.push_back(std::move(*fd));
    if (i % 100 != 0) continue;
    const std::uint64_t start = monotonic_ns();
    ASSERT_EQ(connect("good").welcome.status, abi::WelcomeStatus::kOk);
    EXPECT_LT(monotonic_ns() - start, 300 * kMs) << "after " << silent.size() << " silent connections next door";
  }
  const std::uint64_t start = monotonic_ns();
  EXPECT_EQ(connect("bad").welcome.status, abi::WelcomeStatus::kOk) << "not even in its own slice";
  EXPECT_LT(monotonic_ns() - start, 1'500 * kMs);
}

TEST_F(HostileTest, DescriptorsInAHelloAreClosed) {
  const auto count = [&] {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(arbiter_->pid()) + "/fd")) {
      ++n;
    }
    return n;
  };
  const std::size_t before = count();
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
  EXPECT_TRUE(eventually([&] { return count() <= before; })) << count() << " against " << before;
}

}  // namespace
}  // namespace carve::arbiter_test
