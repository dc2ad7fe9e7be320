#include "arbiter/lifelines.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/integration/arbiter/raw_client.h"

// Lifelines on the kernel's real leases.
namespace carve::arbiter_test {
namespace {

using arbiter::Lifelines;
using State = Lifelines::State;

class LifelinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root: the folder's mount is cloned";
    folder_ = make_runtime() + "/lifelines";
    auto opened = Lifelines::open(folder_);
    ASSERT_TRUE(opened) << opened.error().what;
    lines_ = std::move(*opened);
    ASSERT_TRUE(lines_.supported());
    self_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    auto made = lines_.make("s", 7, getpid(), self_, true);
    ASSERT_TRUE(made) << made.error().what;
    line_ = *made;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(std::filesystem::path(folder_).parent_path());
  }
  Fd descriptor() {
    auto fd = lines_.tenant_descriptor(line_);
    EXPECT_TRUE(fd) << fd.error().what;
    return std::move(*fd);
  }

  std::string folder_;
  Lifelines lines_;
  Lifelines::Lifeline line_;
  Fd self_;
};

TEST_F(LifelinesTest, EachProcessHasItsOwnIdentity) {
  if (arbiter::identity_of(self_) == 0) GTEST_SKIP() << "SKIPPED: a kernel before 6.9 gives processes no identity";
  Child child([] {});
  const Fd other(static_cast<int>(syscall(SYS_pidfd_open, child.pid(), 0)));
  EXPECT_NE(arbiter::identity_of(other), arbiter::identity_of(self_));
  EXPECT_NE(arbiter::identity_of(other), 0U);
  EXPECT_EQ(arbiter::identity_of(Fd()), 0U);
}

TEST_F(LifelinesTest, IsHeldByDescriptorsAndMappingsInAnyProcess) {
  EXPECT_EQ(lines_.state(line_), State::kFree);
  Fd fd = descriptor();
  EXPECT_EQ(lines_.state(line_), State::kHeld);
  void* mapped = mmap(nullptr, abi::kLifelineBytes, PROT_NONE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  fd.reset();
  EXPECT_EQ(lines_.state(line_), State::kHeld);
  Child child([] {});
  ASSERT_TRUE(child.wait_ready());
  munmap(mapped, abi::kLifelineBytes);
  EXPECT_EQ(lines_.state(line_), State::kHeld) << "the child inherited it";
  child.kill();
  EXPECT_EQ(lines_.state(line_), State::kFree);
  EXPECT_EQ(lines_.state(line_), State::kFree) << "a look does not hold it";
}

TEST_F(LifelinesTest, AnExecLetsItGo) {
  Fd fd = descriptor();
  void* mapped = mmap(nullptr, abi::kLifelineBytes, PROT_NONE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd ready(ends[0]);
  Child child([&] {
    if (dup2(ends[1], 9) == 9) execl("/bin/sh", "sh", "-c", "echo >&9; exec sleep 60", nullptr);
  });
  char byte = 0;
  ASSERT_EQ(read(ready.get(), &byte, 1), 1);
  EXPECT_EQ(lines_.state(line_), State::kHeld);
  munmap(mapped, abi::kLifelineBytes);
  fd.reset();
  EXPECT_EQ(lines_.state(line_), State::kFree);
  close(ends[1]);
}

TEST_F(LifelinesTest, TheDescriptorCannotBeWrittenOrReopenedForWriting) {
  const Fd fd = descriptor();
  EXPECT_LT(write(fd.get(), "x", 1), 0);
  EXPECT_LT(ftruncate(fd.get(), 1 << 20), 0);
  const std::string own = "/proc/self/fd/" + std::to_string(fd.get());
  EXPECT_LT(open(own.c_str(), O_WRONLY | O_CLOEXEC), 0);
  EXPECT_LT(open(own.c_str(), O_RDWR | O_CLOEXEC), 0);
}

TEST_F(LifelinesTest, TheNextArbiterFindsThemWithTheirProcesses) {
  ASSERT_TRUE(lines_.make("s", 8, getpid(), self_, false));
  ASSERT_TRUE(lines_.make("s-1", 9, getpid(), self_, true)) << "another slice";
  ASSERT_TRUE(std::filesystem::exists(folder_ + "/" + line_.name));
  const char* const others[] = {"s.1", "s.x.1.1.held", "s.1.1.1.other", "s.1.1.1.held.more",
                                "s.1.1.99999999999999999999.held"};
  for (const char* name : others) {
    const Fd other(open((folder_ + "/" + name).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    ASSERT_TRUE(other);
  }
  auto next = Lifelines::open(folder_);
  ASSERT_TRUE(next);
  auto found = next->of("s");
  ASSERT_EQ(found.size(), 2U);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.entry < b.entry; });
  EXPECT_EQ(found[0].name, line_.name);
  EXPECT_EQ(found[0].pid, getpid());
  EXPECT_EQ(found[0].process, arbiter::identity_of(self_));
  EXPECT_TRUE(found[0].sent);
  EXPECT_EQ(found[1].entry, 8U);
  EXPECT_FALSE(found[1].sent);
  next->remove(found[0]);
  EXPECT_EQ(next->of("s").size(), 1U);
  EXPECT_EQ(next->state(found[0]), State::kFree);
}

TEST_F(LifelinesTest, WithoutAFreeDescriptorItsStateIsUnknown) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const State state = lines_.state(line_);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(state, State::kUnknown);
}

}  // namespace
}  // namespace carve::arbiter_test
