#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/integration/arbiter/fixture.h"

// An arbiter of the next page ABI with processes and a library of this one, and the reverse.
namespace carve::arbiter_test {
namespace {

constexpr std::uint16_t kNextAbi = abi::kPageAbi + 1;

/// Runs the program of the next release on this runtime folder.
class NextArbiter {
 public:
  explicit NextArbiter(const std::string& runtime) : pid_(::fork()) {
    if (pid_ < 0) std::abort();  // kill(-1, …) would end every process of the machine
    if (pid_ != 0) return;
    ::execl(CARVE_ARBITER_NEXT, CARVE_ARBITER_NEXT, "--runtime-dir", runtime.c_str(), nullptr);
    std::_Exit(127);
  }
  ~NextArbiter() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  NextArbiter(const NextArbiter&) = delete;
  NextArbiter& operator=(const NextArbiter&) = delete;

 private:
  pid_t pid_;
};

class NextTest : public ArbiterTest {
 protected:
  bool beats(const RawCard& card) {
    const std::uint64_t start = monotonic_ns();
    return eventually([&] { return card.grant->heartbeat_ns.load_relaxed() > start + 30 * kMs; });
  }
};

TEST_F(NextTest, ALibraryOfThisReleaseWorksWithTheNextArbiter) {
  put(order("old", 30, ShareClass::kFixed));
  RawClient running = connect("old");
  ASSERT_EQ(running.cards.size(), 1U);
  running.card().entry->used_bytes.store_seq_cst(4711);
  Works works(running.card());
  arbiter_.reset();
  const NextArbiter next(runtime_);
  ASSERT_TRUE(eventually([&] { return listed("old").has_value(); }));
  EXPECT_TRUE(beats(running.card()));
  EXPECT_EQ(running.card().grant->memory_limit.load_relaxed(), Bytes::gib(4).count());
  EXPECT_EQ(listed("old")->cards[0].announced, Bytes(4711));
  const auto before = works.busy_ns();
  EXPECT_TRUE(eventually([&] { return works.busy_ns() > before + 10 * kMs; }))
      << "the next arbiter must grant it time";

  // New processes in the old container, and in a new slice; the agent is not upgraded yet.
  auto another = hello(runtime_, "old", abi::LibraryKind::kCuda, abi::kPageAbi);
  ASSERT_TRUE(another.has_value());
  EXPECT_EQ(another->welcome.status, abi::WelcomeStatus::kOk);
  EXPECT_EQ(another->welcome.abi, abi::kPageAbi);
  put(order("fresh", 20, ShareClass::kFixed));
  RawClient fresh = connect("fresh");
  ASSERT_EQ(fresh.cards.size(), 1U);
  EXPECT_EQ(fresh.card().grant->abi, kNextAbi) << "pages N";
  EXPECT_TRUE(beats(fresh.card()));
}

TEST_F(NextTest, ALibraryTwoVersionsOldIsRefusedWithAStatus) {
  arbiter_.reset();
  const NextArbiter next(runtime_);
  ASSERT_TRUE(eventually([&] { return agent_->list().has_value(); }));
  put(order("s"));
  const auto refused = hello(runtime_, "s", abi::LibraryKind::kCuda, kNextAbi - 2);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->welcome.status, abi::WelcomeStatus::kAbiUnsupported);
  EXPECT_EQ(refused->welcome.abi, kNextAbi);
}

TEST_F(NextTest, ALibraryOfTheNextReleaseReadsThePagesOfThisArbiter) {
  put(order("s"));
  const auto client = hello(runtime_, "s", abi::LibraryKind::kCuda, kNextAbi, kNextAbi - 1);
  ASSERT_TRUE(client.has_value());
  EXPECT_EQ(client->welcome.status, abi::WelcomeStatus::kOk);
  EXPECT_EQ(client->welcome.abi, abi::kPageAbi);
}

}  // namespace
}  // namespace carve::arbiter_test
