#include "arbiter/page_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/thread.h"

namespace carve::arbiter {
namespace {

/// An account page that only this process maps, once for writing, through AccountFile.
class AccountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = PageFiles::make_account(name_);
    ASSERT_TRUE(made) << made.error().what;
    account_ = std::move(*made);
  }
  [[nodiscard]] Result<int> count(pid_t pid) const { return PageFiles::count_mappings(pid, name_, account_.inode); }
  [[nodiscard]] int counted() const { return count(getpid()).value_or(-1); }

  const std::string name_ = "page-files-test-0";
  AccountFile account_;
};

TEST_F(AccountTest, AReadOnlyMappingDoesNotCount) {
  ASSERT_EQ(counted(), 1);
  const std::string own = "/proc/self/fd/" + std::to_string(account_.fd.get());
  const Fd read_only(::open(own.c_str(), O_RDONLY | O_CLOEXEC));
  void* nvml = mmap(nullptr, abi::kAccountPageBytes, PROT_READ, MAP_SHARED, read_only.get(), 0);
  ASSERT_NE(nvml, MAP_FAILED);
  EXPECT_EQ(counted(), 1) << "NVML's mapping has no account entry";
  void* second = mmap(nullptr, abi::kAccountPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, account_.fd.get(), 0);
  ASSERT_NE(second, MAP_FAILED);
  EXPECT_EQ(counted(), 2) << "another library instance";
  munmap(second, abi::kAccountPageBytes);
  munmap(nvml, abi::kAccountPageBytes);
}

TEST_F(AccountTest, AnEndedProcessMapsNothing) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const auto counted = count(child);
  ASSERT_TRUE(counted) << counted.error().what;
  EXPECT_EQ(*counted, 0);
}

TEST_F(AccountTest, AnUnreadableProcessIsAnErrorAndNotZero) {
  ASSERT_EQ(counted(), 1);  // UBSan's first check of a type uses a pipe
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto counted = count(getpid());
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(counted);
  EXPECT_EQ(counted.error().code, Code::kResourceExhausted) << counted.error().what;
}

/// A child that continues in a second thread after its first one has ended; it has this process's mappings.
class WithoutLeader {
 public:
  WithoutLeader() {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      // Never joined: the process, which has no other thread then, ends by a signal.
      static_cast<void>(new Thread("remains", [] {
        for (;;) pause();
      }));
      static_cast<void>(write(ready[1], "x", 1));
      syscall(SYS_exit, 0);  // ends this thread only
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    const std::string exe = "/proc/" + std::to_string(pid_) + "/exe";  // like its memory, no longer visible
    for (int i = 0; i < 5000 && access(exe.c_str(), F_OK) == 0; ++i) usleep(1000);
    EXPECT_NE(access(exe.c_str(), F_OK), 0);
  }
  WithoutLeader(const WithoutLeader&) = delete;
  WithoutLeader& operator=(const WithoutLeader&) = delete;
  ~WithoutLeader() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST_F(AccountTest, AProcessWithoutItsFirstThreadIsReadThroughAnother) {
  const WithoutLeader child;
  const auto counted = count(child.pid());
  ASSERT_TRUE(counted) << counted.error().what;
  EXPECT_EQ(*counted, 1);
  account_.page = {};  // so that no other process maps it
  const auto found = PageFiles::find_account(name_, account_.inode);
  ASSERT_TRUE(found) << found.error().what;
  EXPECT_EQ(found->inode, account_.inode);
}

/// A tenant can write any PID into its page. A kernel thread never ends, so its account entry would be kept forever.
TEST_F(AccountTest, AKernelThreadMapsNothing) {
  pid_t kernels = 0;
  for (const std::string& name : names_in("/proc")) {
    const pid_t pid = std::atoi(name.c_str());
    char target[16];
    const std::string own = "/proc/" + name;
    if (pid <= 1 || readlink((own + "/exe").c_str(), target, sizeof target) >= 0 || errno != ENOENT) continue;
    if (access((own + "/task/" + name).c_str(), F_OK) != 0) continue;
    kernels = pid;
    break;
  }
  if (kernels == 0) GTEST_SKIP() << "SKIPPED: a PID namespace without the kernel's threads";
  const auto counted = count(kernels);
  ASSERT_TRUE(counted) << counted.error().what;
  EXPECT_EQ(*counted, 0);
}

/// The same for a process that has ended and was not waited for: it has a PID, but no memory.
TEST_F(AccountTest, AZombieMapsNothing) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  const auto counted = count(child);
  ASSERT_TRUE(counted) << counted.error().what;
  EXPECT_EQ(*counted, 0);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace carve::arbiter
